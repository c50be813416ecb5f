// Drag and drop on the submit page, and paths that keep their folders. Without this script the inputs work as they are.
(() => {
  const zone = document.getElementById("drop");
  if (!zone) return;
  const input = zone.querySelector("input[name=files]");
  const folder = zone.querySelector("input[name=folder]");
  const paths = zone.querySelector("input[name=paths]");
  const list = document.getElementById("chosen");
  document.getElementById("drop-hint").hidden = false;
  let chosen = []; // {path, file}: what will be sent

  const show = () => {
    const transfer = new DataTransfer();
    for (const { file } of chosen) transfer.items.add(file);
    input.files = transfer.files;
    paths.value = JSON.stringify(chosen.map(({ path }) => path));
    const bytes = chosen.reduce((sum, { file }) => sum + file.size, 0);
    const names = chosen.slice(0, 12).map(({ path }) => path).join(", ");
    list.textContent = chosen.length === 0 ? ""
      : `${chosen.length === 1 ? "1 file" : `${chosen.length} files`}, ${(bytes / 1000).toFixed(1)} kB: ${names}${chosen.length > 12 ? ", …" : ""}`;
  };

  // Entries of a dropped folder come in portions: readEntries must be called until it gives none.
  const portion = (reader) => new Promise((resolve, reject) => reader.readEntries(resolve, reject));
  const fileOf = (entry) => new Promise((resolve, reject) => entry.file(resolve, reject));
  const walk = async (entry) => {
    if (entry.isFile) return [{ path: entry.fullPath.replace(/^\//, ""), file: await fileOf(entry) }];
    const reader = entry.createReader();
    const found = [];
    for (let some = await portion(reader); some.length > 0; some = await portion(reader)) {
      for (const child of some) found.push(...await walk(child));
    }
    return found;
  };

  const take = async (transfer) => {
    // Both lists are read before the first await: the browser empties them once the event is over.
    const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const files = [...transfer.files];
    const found = entries.length > 0 ? (await Promise.all(entries.map(walk))).flat()
      : files.map((file) => ({ path: file.name, file }));
    chosen = [...chosen, ...found];
    show();
  };

  for (const name of ["dragenter", "dragover"]) {
    zone.addEventListener(name, (event) => { event.preventDefault(); zone.classList.add("over"); });
  }
  zone.addEventListener("dragleave", (event) => {
    if (!zone.contains(event.relatedTarget)) zone.classList.remove("over");
  });
  zone.addEventListener("drop", async (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    try {
      await take(event.dataTransfer);
    } catch (error) {
      list.textContent = `The dropped files could not be read (${error.message}). Choose them with the button instead.`;
    }
  });
  input.addEventListener("change", () => {
    chosen = [...input.files].map((file) => ({ path: file.name, file }));
    show();
  });
  folder.addEventListener("change", () => {
    chosen = [...chosen, ...[...folder.files].map((file) => ({ path: file.webkitRelativePath || file.name, file }))];
    folder.value = ""; // its files travel with the others, so that their folders are kept
    show();
  });
})();
