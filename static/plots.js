// Draws the charts of a page with Plotly, which is fetched when the first of them comes near the window. The tables
// below the charts are there without this script; it closes them, since they then say what the chart shows.
(() => {
  const source = document.currentScript.dataset.plotly;
  let library;

  // Plotly's script brings a <style> for maps along, which the site's policy would block with an error and which no
  // chart here needs: while the script loads, a <style> is a <template>, which nobody applies.
  const load = () => (library ??= new Promise((resolve, reject) => {
    const create = document.createElement.bind(document);
    const script = create("script");
    const done = (settle) => { delete document.createElement; settle(); };
    script.src = source;
    script.onload = () => done(() => resolve(window.Plotly));
    script.onerror = () => done(() => reject(new Error("the script that draws charts could not be loaded")));
    document.createElement = (name, ...rest) => create(name === "style" ? "template" : name, ...rest);
    document.head.append(script);
  }));

  const read = (figure) => JSON.parse(figure.querySelector('script[type="application/json"]').textContent);

  // A string that names a custom property, such as "--accent", becomes the colour that it has in the theme of now.
  const resolved = (value, styles) => {
    if (typeof value === "string") return value.startsWith("--") ? styles.getPropertyValue(value).trim() : value;
    if (Array.isArray(value)) return value.map((item) => resolved(item, styles));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolved(item, styles)]));
    }
    return value;
  };

  const axes = { automargin: true, gridcolor: "--line", zerolinecolor: "--strong-line", linecolor: "--strong-line",
    tickcolor: "--strong-line", exponentformat: "none", fixedrange: true };

  const layoutOf = ({ traces, layout, height }, width) => {
    const narrow = width < 520;
    const entries = traces.length > 1 ? traces.length : 0;
    const base = {
      height: height + (narrow ? 22 * Math.ceil(entries / 2) : 0), width, autosize: false, dragmode: false, hovermode: "closest", separators: ". ",
      margin: { l: 56, r: 14, t: 14, b: 56, pad: 2 },
      paper_bgcolor: "--bg", plot_bgcolor: "--bg",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: "--ink" },
      hoverlabel: { bgcolor: "--raised", bordercolor: "--strong-line", font: { color: "--ink", size: 13 }, align: "left" },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemclick: false, itemdoubleclick: false,
        ...(narrow ? { entrywidthmode: "fraction", entrywidth: 0.5 } : {}) },
      showlegend: entries > 0,
      xaxis: {}, yaxis: {},
    };
    const merged = { ...base, ...layout };
    for (const name of Object.keys(merged)) if (/^[xy]axis\d*$/.test(name)) merged[name] = { ...axes, ...merged[name] };
    return merged;
  };

  const draw = async (figure) => {
    const canvas = figure.querySelector(".canvas");
    const data = read(figure);
    canvas.hidden = false;
    const styles = getComputedStyle(document.documentElement);
    const plotly = await load();
    const layout = layoutOf(data, canvas.clientWidth);
    canvas.style.height = `${layout.height}px`;
    await plotly.react(canvas, resolved(data.traces, styles), resolved(layout, styles),
      { displayModeBar: false, responsive: false, showTips: false, doubleClick: false });
    figure.dataset.drawn = "yes";
  };

  const fail = (figure, error) => {
    figure.querySelector(".canvas").hidden = true;
    figure.querySelector("details.same").open = true;
    figure.querySelector(".readout").textContent = `The chart cannot be drawn: ${error.message}. The table says the same.`;
  };

  // Arrow keys walk through the points that carry a text, in the order of the table's rows.
  const points = (canvas) => (canvas.data ?? []).flatMap((trace, curveNumber) =>
    (trace.hoverinfo === "skip" ? [] : trace.text ?? []).map((text, pointNumber) => ({ curveNumber, pointNumber, text })));

  const walk = (figure) => {
    const canvas = figure.querySelector(".canvas");
    let at = -1;
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const all = points(canvas);
      if (!step || !all.length || !window.Plotly) return;
      event.preventDefault();
      at = (at + step + all.length) % all.length;
      const { curveNumber, pointNumber, text } = all[at];
      window.Plotly.Fx.hover(canvas, [{ curveNumber, pointNumber }]);
      figure.querySelector(".readout").textContent = String(text).replaceAll("<br>", ", ");
    });
    canvas.addEventListener("blur", () => window.Plotly?.Fx.unhover(canvas));
  };

  const figures = [...document.querySelectorAll("figure.plot")];
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      draw(target).catch((error) => fail(target, error));
    }
  }, { rootMargin: "400px" });

  for (const figure of figures) {
    const canvas = figure.querySelector(".canvas");
    figure.querySelector("details.same").open = false;
    canvas.hidden = false;
    canvas.style.height = `${read(figure).height}px`; // the place is kept, so that nothing moves when it is drawn
    walk(figure);
    seen.observe(figure);
  }

  const redraw = () => {
    for (const figure of figures) if (figure.dataset.drawn) draw(figure).catch((error) => fail(figure, error));
  };
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = innerWidth;
  let waiting;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar comes and goes
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 150);
  });
})();
