// Stands last in the page: looks at it and tells the frame around it what it sees.
addEventListener("load", () => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const short = (element) => (element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 60);

  // The filter, as a person uses it.
  const box = document.getElementById("filter");
  const rows = all("#cells tbody tr");
  const ask = (text) => {
    box.value = text;
    box.dispatchEvent(new Event("input"));
    const visible = rows.filter((row) => row.getClientRects().length > 0).length;
    return { visible, said: document.getElementById("shown").textContent };
  };
  const filter = { rows: rows.length, none: ask("no-such-word"), some: ask("Silu_and_mul bf16 FAIL"), all: ask("") };

  // Everything is unfolded, so that everything is looked at.
  const folded = all("details:not([open])").length;
  all("details").forEach((details) => { details.open = true; });
  const page = document.documentElement;
  const inScroller = (element) => element.closest(".scroll, .plot, pre");
  const wide = all("body *").filter((element) => {
    if (inScroller(element) && !element.matches(".scroll, .plot, pre")) return false;
    return element.getBoundingClientRect().right > page.clientWidth + 1;
  });

  // Contrast of each text with what lies behind it.
  const parse = (text) => {
    const parts = text.match(/[\d.]+/g).map(Number);
    return { rgb: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : 1 };
  };
  const over = (top, alpha, below) => below.map((value, i) => alpha * top[i] + (1 - alpha) * value);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let node = element; node; node = node.parentElement) layers.push(parse(getComputedStyle(node).backgroundColor));
    let color = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
    for (const { rgb, alpha } of layers.reverse()) color = over(rgb, alpha, color);
    if (!(element instanceof SVGElement)) return color;
    const at = element.getBoundingClientRect();
    const [x, y] = [at.left + at.width / 2, at.top + at.height / 2];
    for (const shape of all("rect", element.ownerSVGElement)) {
      const box = shape.getBoundingClientRect();
      const style = getComputedStyle(shape);
      if (style.fill === "none" || x < box.left || x > box.right || y < box.top || y > box.bottom) continue;
      const { rgb, alpha } = parse(style.fill);
      color = over(rgb, alpha * Number(style.fillOpacity) * Number(style.opacity), color);
    }
    return color;
  };
  const texts = all("body *").filter((element) => {
    if (element.closest("script, style") || element.getClientRects().length === 0) return false;
    return [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  });
  const pale = [];
  for (const element of texts) {
    const style = getComputedStyle(element);
    const { rgb, alpha } = parse(element instanceof SVGElement ? style.fill : style.color);
    const ground = behind(element);
    const [a, b] = [light(over(rgb, alpha, ground)), light(ground)].sort((p, q) => q - p);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) pale.push(`${ratio.toFixed(2)} ${element.tagName} ${short(element)}`);
  }

  // Texts of plots: inside their plot, and none on another.
  const crowded = [];
  for (const plot of all("svg")) {
    const frame = plot.getBoundingClientRect();
    const boxes = all("text", plot).map((text) => ({ text, box: text.getBoundingClientRect() }));
    boxes.forEach(({ text, box }, i) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1) crowded.push(`outside: ${short(text)}`);
      for (const other of boxes.slice(i + 1)) {
        const across = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
        const down = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
        if (across > 1 && down > 4) crowded.push(`${short(text)} on ${short(other.text)}`);
      }
    });
  }

  // Where the keyboard gets to.
  const stops = all("a[href], summary, input, [tabindex='0']");
  const unreached = stops.filter((element) => {
    element.focus({ focusVisible: true });
    return document.activeElement !== element || getComputedStyle(element).outlineStyle === "none";
  });

  Object.assign(found, {
    width: innerWidth,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    page: [page.scrollWidth, page.clientWidth],
    wide: wide.map((element) => `${element.tagName}.${element.className} ${short(element)}`).slice(0, 5),
    folded,
    filter,
    pale: [...new Set(pale)].slice(0, 10),
    texts: texts.length,
    crowded: crowded.slice(0, 10),
    plots: all("svg").length,
    unnamed: all("svg").filter((plot) => !plot.getAttribute("aria-label")).length,
    stops: stops.length,
    unreached: unreached.map((element) => `${element.tagName} ${short(element)}`).slice(0, 5),
    lang: page.lang,
    title: document.title,
    loaded: performance.getEntriesByType("resource").map((entry) => entry.name),
  });
  const text = JSON.stringify(found).replace(/[<>&]/g, (c) => `\\u00${c.charCodeAt(0).toString(16)}`);
  parent.postMessage(text, "*");
});
