"use strict";
// Puts the answers of a switch, which were computed when the page was built, into the table of mappings.
{
  const form = document.getElementById("what-ifs");
  if (form) {
    const known = JSON.parse(document.getElementById("what-ifs-data").textContent);
    const lines = Array.from(form.closest("section").querySelector("table").tBodies[0].rows);  // before any is sorted

    const fill = (cell, text) => {
      const [told, note] = text.split("\n");
      cell.textContent = told;
      if (!note) return;
      const small = document.createElement("small");
      small.textContent = note;
      cell.append(document.createElement("br"), small);
    };

    const show = () => {
      const chosen = form.querySelector(":checked");
      let changed = 0;
      lines.forEach((line, place) => {
        const [base, cells] = [known.rows[place][0], known.rows[place][chosen.value]];
        cells.forEach((text, column) => {
          const differs = column < cells.length - 1 && text !== base[column];
          fill(line.cells[column], known.texts[text]);
          line.cells[column].classList.toggle("differs", differs);
        });
        changed += cells.slice(0, -1).some((text, column) => text !== base[column]) ? 1 : 0;
      });
      for (const head of form.closest("section").querySelectorAll("[aria-sort]")) head.removeAttribute("aria-sort");
      const words = `${chosen.parentNode.textContent.trim()}: ${changed} of ${lines.length} rows ${changed === 1 ? "differs" : "differ"}.`;
      form.querySelector("output").textContent = Number(chosen.value) ? words : "";
    };

    form.addEventListener("change", show);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.reset();
    form.hidden = false;
  }
}
