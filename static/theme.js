// The reader's choice of theme. Without this script the page follows the system's setting.
(() => {
  const names = ["system", "light", "dark"];
  const root = document.documentElement;
  const read = () => {
    try {
      const name = localStorage.getItem("theme");
      return names.includes(name) ? name : "system";
    } catch {
      return "system"; // storage may be forbidden; the system's setting is then all there is
    }
  };
  const apply = (name) => {
    if (name === "system") delete root.dataset.theme;
    else root.dataset.theme = name;
  };
  apply(read()); // before the first paint: the script stands in the head

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (!button) return;
    const label = (name) => { button.textContent = `Theme: ${name}`; };
    label(read());
    button.hidden = false;
    button.addEventListener("click", () => {
      const next = names[(names.indexOf(root.dataset.theme ?? "system") + 1) % names.length];
      apply(next);
      label(next);
      try { localStorage.setItem("theme", next); } catch { /* holds for this page only */ }
    });
  });
})();
