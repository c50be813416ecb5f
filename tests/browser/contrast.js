// Texts of the page whose contrast to their ground is below 4.5 : 1 (WCAG 2.2, 1.4.3), as the browser computes colours.
() => {
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const linear = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const speaks = [...element.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
    if (!speaks || !element.checkVisibility()) continue;
    if (element.closest("svg, option, .unseen, .skip, [disabled]")) continue;
    const pair = [parse(getComputedStyle(element).color), ground(element)].map(luminance).sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) found.push(`${element.tagName} "${element.textContent.trim().slice(0, 40)}" ${ratio.toFixed(2)}`);
  }
  return found;
}
