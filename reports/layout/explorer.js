"use strict";
// Shows answers that were computed when the page was built: the one of the grid's point nearest to what is asked.
{
  const form = document.getElementById("explorer");
  const known = form && JSON.parse(document.getElementById("explorer-data").textContent);

  const FAR = 2;  // times as much or as little as asked
  const APART = 0.5;  // of numbers that are near by their difference

  function nearest(axis, wanted) {
    if (typeof axis.values[0] === "string") return axis.values.indexOf(wanted);
    const within = Math.min(Math.max(wanted, Math.min(...axis.values)), Math.max(...axis.values));
    const apart = (value) => Math.abs(axis.byRatio ? Math.log(value / within) : value - within);
    return axis.values.reduce((best, value, place) => (apart(value) < apart(axis.values[best]) ? place : best), 0);
  }

  function isFar(axis, wanted, value) {
    if (typeof value === "string") return false;
    return axis.byRatio ? Math.abs(Math.log(value / wanted)) >= Math.log(FAR) - 1e-9 : Math.abs(value - wanted) >= APART;
  }

  function range(field) {
    const kind = field.step === "1" ? "whole number" : "number";
    return `a ${kind} from ${field.min} ${field.max ? `to ${Number(field.max).toLocaleString("en-US")}` : "on"}`;
  }

  function grouped(digits) {  // as Python may write a whole number
    return Number(digits).toString().replace(/\B(?=(\d{3})+$)/g, "_");
  }

  function written(axis, place) {
    const value = axis.values[place];
    return typeof value === "number" ? value.toLocaleString("en-US") : value;
  }

  function say(kind, text) {
    const place = form.querySelector(`.${kind}`);
    place.textContent = text;
    place.hidden = !text;
  }

  function show() {
    let point = 0;
    const asked = [known.asked];
    const words = [];
    const far = [];
    for (const axis of known.axes) {
      const field = form.elements[axis.name];
      const isNumber = field.type === "number";
      if (isNumber && !(field.value && field.checkValidity())) {
        for (const kind of ["far", "choice", "sure", "warned", "made", "asked"]) say(kind, "");
        return say("nearest", `Give ${range(field)} for: ${field.labels[0].textContent}.`);
      }
      const place = nearest(axis, typeof axis.values[0] === "number" ? Number(field.value) : field.value);
      point = point * axis.values.length + place;
      asked.push(`--${axis.name.replaceAll("_", "-")} ${isNumber ? Number(field.value) : field.value}`);
      words.push(`${field.labels[0].textContent}: ${written(axis, place)}`);
      if (isFar(axis, Number(field.value), axis.values[place])) {
        far.push(`${field.labels[0].textContent}: ${written(axis, place)} for ${Number(field.value).toLocaleString("en-US")}`);
      }
      const slider = form.querySelector(`[data-axis="${axis.name}"]`);
      if (slider) {
        slider.value = place;
        slider.setAttribute("aria-valuetext", written(axis, place));
      }
    }
    const [choice, sure, warned, made] = known.points[point].map((text) => known.texts[text]);
    say("nearest", `Nearest point of the grid: ${words.join("; ")}.`);
    say("far", far.length ? `Your numbers are far from it, and the answer may not hold for them: ${far.join("; ")}.` : "");
    say("choice", choice);
    say("sure", sure);
    say("warned", warned && `Warning: ${warned}.`);
    say("made", made.replace(/^(impls\.make\("\w+", )[\d_]+/, `$1${grouped(form.elements.capacity.value)}`));
    say("asked", asked.join(" "));
  }

  if (form) {
    form.addEventListener("input", (event) => {
      const axis = known.axes.find((one) => one.name === event.target.dataset.axis);
      if (axis) form.elements[axis.name].value = axis.values[event.target.value];
      show();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    show();
  }
}
