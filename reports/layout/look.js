"use strict";
// Draws each figure.look from the rows it holds, as its form asks. Of a column, "at" is the place of each row's value.

function look(figure) {
  const form = figure.querySelector("form");
  const { spec, columns, times, usual, names, told } = JSON.parse(figure.querySelector("script").textContent);
  const every = times.value.map((_, row) => row);
  const filters = Object.keys(names).filter((name) => form.elements[name]).map((name) => form.elements[name]);
  const details = figure.querySelector("details");
  let view = null, wanted = 0, before = axes(), note = "", shown = [];

  function axes() {
    return [form.elements.along.value, form.elements.lines.value];
  }

  function text(name, row) {
    const value = columns[name].values[columns[name].at[row]];
    return typeof value === "number" ? value.toLocaleString("en") : value;
  }

  function fits(row) {
    return filters.every((one) => one.value === "" || columns[one.name].at[row] === Number(one.value));
  }

  // Where no record fits, other choices give way: one of them if that is enough, else all.
  function giveWay(chosen) {
    note = "";
    if (every.some(fits)) return;
    const others = filters.filter((one) => one !== chosen && one.value !== "");
    for (const one of others) {
      const kept = one.value;
      one.value = "";
      if (every.some(fits)) {
        note = ` No such record has that ${names[one.name]}, so it shows all of them.`;
        return;
      }
      one.value = kept;
    }
    for (const one of others) one.value = "";
    note = " No such record has the other choices, so it shows all of them.";
  }

  // What lies along or tells lines apart has all of its values; what did so before has its usual one.
  function follow(chosen) {
    if (chosen.name !== "along" && chosen.name !== "lines") return;
    for (const name of before) if (form.elements[name] && !axes().includes(name)) form.elements[name].value = usual[name];
    for (const name of axes()) if (form.elements[name]) form.elements[name].value = "";
    before = axes();
  }

  function series(row) {
    const source = text("source", row);
    return text(before[1], row) + (source === "measured" ? "" : ` (${source})`);
  }

  function drawn(row) {
    const [along] = before;
    const number = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
    const said = Object.fromEntries([...Object.keys(names), ...told].map((name) => [name, text(name, row)]));
    const others = [...Object.keys(names), "source"].filter((name) => name !== along);
    return {
      ...said, x: columns[along].values[columns[along].at[row]], series: series(row),
      value: times.value[row], low: times.low[row], high: times.high[row],
      line: others.map((name) => columns[name].at[row]).join(),
      said: number(times.value[row]) + (times.low[row] < times.high[row]
        ? `, 95 % interval ${number(times.low[row])} to ${number(times.high[row])}` : ""),
    };
  }

  function drawing(values) {
    const { palette, ...made } = structuredClone(spec);
    const { x, y, color } = made.encoding;
    const [along, by] = before;
    const places = new Map(shown.map((row) => [series(row), columns[by].at[row]]));
    const domain = Array.from(places.keys()).sort((one, other) => places.get(one) - places.get(other));
    const turns = (place) => 3 * Math.floor(place / palette.colors.length);  // so that no two look alike
    const colorOf = (place) => palette.colors[place % palette.colors.length];
    const shapeOf = (place) => palette.shapes[(place + turns(place)) % palette.shapes.length];
    const ticks = Array.from(new Set(values.map((one) => one.x)));
    const point = made.layer[2].encoding;
    made.data = { values };
    Object.assign(x, { title: names[along] });
    if (ticks.length < 15) x.axis.values = ticks;
    x.scale.type = form.elements.x.value;
    y.scale.type = form.elements.y.value;
    if (y.scale.type === "log") y.axis.values = decades(values);
    const width = figure.querySelector(".drawing").clientWidth;
    for (const each of [color, point.stroke, point.shape]) {
      each.title = names[by];
      each.legend.columns = Math.max(1, Math.floor(width / (60 + 7 * Math.max(...domain.map((name) => name.length)))));
      each.scale = { domain, range: domain.map((name) => (each === point.shape ? shapeOf : colorOf)(places.get(name))) };
    }
    made.config = config();
    return made;
  }

  // Ticks of a logarithmic axis, fewer of them where it spans more; where it spans little, what the library chooses.
  function decades(values) {
    const [low, high] = [Math.min(...values.map((one) => one.low)), Math.max(...values.map((one) => one.high))];
    const span = Math.log10(high / low);
    if (span < 1) return undefined;
    const powers = Array.from({ length: Math.ceil(span) + 2 }, (_, step) => 10 ** (Math.floor(Math.log10(low)) + step));
    return powers.flatMap((power) => (span < 2.5 ? [1, 2, 5] : span < 6.5 ? [1, 3] : [1]).map((step) => step * power));
  }

  function config() {
    const of = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const words = { labelColor: of("ink"), titleColor: of("ink"), labelFontSize: 12, titleFontSize: 12, labelLimit: 0 };
    return {
      background: "transparent", font: "system-ui, sans-serif", view: { stroke: null },
      axis: { ...words, gridColor: of("line"), domainColor: of("soft"), tickColor: of("soft") },
      legend: { ...words, symbolSize: 90 },
    };
  }

  async function draw() {
    shown = every.filter(fits);
    const unstable = shown.filter((row) => text("status", row) === "unstable").length;
    const which = unstable ? ` ${unstable.toLocaleString("en")} of them are unstable.` : "";
    figure.querySelector(".said").textContent =
      `Shows ${shown.length.toLocaleString("en")} of ${every.length.toLocaleString("en")} records.${which}${note}`;
    const values = shown.map(drawn);
    tabulate(values);
    const turn = ++wanted;
    const options = { mode: "vega-lite", actions: false, ast: true, renderer: "svg", defaultStyle: false,
      tooltip: { disableDefaultStyle: true } };
    const place = document.createElement("div");
    place.style.width = "100%";
    const before = figure.querySelector(".drawing");
    before.classList.add("drawn");
    before.append(place);
    const made = await vegaEmbed(place, drawing(values), options);
    if (turn !== wanted) {  // a later choice was drawn meanwhile
      made.finalize();
      place.remove();
      return;
    }
    if (view) view.finalize();
    view = made;
    before.replaceChildren(place);
  }

  function tabulate(values) {
    details.hidden = false;
    details.querySelector(".wide")?.remove();
    if (!details.open) return;
    const fields = spec.layer[2].encoding.tooltip;
    const wide = Object.assign(document.createElement("div"), { className: "wide", tabIndex: 0 });
    wide.setAttribute("role", "region");
    wide.setAttribute("aria-label", `the records shown in ${figure.querySelector("h3").textContent}`);
    const table = wide.appendChild(document.createElement("table"));
    const head = table.createTHead().insertRow();
    for (const field of fields) head.append(Object.assign(document.createElement("th"), { textContent: field.title }));
    const body = table.createTBody();
    for (const value of values) {
      const row = body.insertRow();
      for (const field of fields) row.insertCell().textContent = value[field.field];
    }
    details.append(wide);
  }

  form.addEventListener("change", (event) => {
    follow(event.target);
    giveWay(event.target);
    draw();
  });
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  details.addEventListener("toggle", () => tabulate(shown.map(drawn)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return draw();
}

if (window.vegaEmbed) for (const figure of document.querySelectorAll("figure.look")) look(figure);
