// Drag and drop on the submit page. Without this script the file inputs beneath do the same, one choice at a time.
(() => {
  const zone = document.getElementById("drop");
  if (!zone) return;
  const input = zone.querySelector("input[type=file][name=files]");
  const list = document.getElementById("chosen");
  const hint = document.getElementById("drop-hint");
  hint.hidden = false;

  const show = () => {
    const files = [...input.files];
    const bytes = files.reduce((sum, file) => sum + file.size, 0);
    list.textContent = files.length === 0 ? ""
      : `${files.length === 1 ? "1 file" : `${files.length} files`}, ${(bytes / 1000).toFixed(1)} kB: `
        + files.slice(0, 12).map((file) => file.name).join(", ") + (files.length > 12 ? ", …" : "");
  };

  // Entries of a dropped folder arrive in portions: readEntries must be called until it gives none.
  const portion = (reader) => new Promise((resolve, reject) => reader.readEntries(resolve, reject));
  const fileOf = (entry) => new Promise((resolve, reject) => entry.file(resolve, reject));
  const walk = async (entry) => {
    if (entry.isFile) return [await fileOf(entry)];
    const reader = entry.createReader();
    const found = [];
    for (let some = await portion(reader); some.length > 0; some = await portion(reader)) {
      for (const child of some) found.push(...await walk(child));
    }
    return found;
  };

  const take = async (transfer) => {
    const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const files = entries.length > 0 ? (await Promise.all(entries.map(walk))).flat() : [...transfer.files];
    const all = new DataTransfer();
    for (const file of [...input.files, ...files]) all.items.add(file);
    input.files = all.files;
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
  input.addEventListener("change", show);
  show(); // after the back button the browser may have kept the choice
})();
