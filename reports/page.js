"use strict";
// A click on a head sorts its table, a second one the other way: numbers by value, all else by the alphabet.
for (const head of document.querySelectorAll("th")) {
  head.tabIndex = 0;
  const sort = () => {
    const table = head.closest("table"), column = head.cellIndex, body = table.tBodies[0];
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const value = (row) => row.cells[column].textContent.replaceAll(",", "");
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)], difference = Number.parseFloat(x) - Number.parseFloat(y);
      return sign * (Number.isNaN(difference) ? x.localeCompare(y) : difference);
    };
    body.append(...[...body.rows].sort(order));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
}
