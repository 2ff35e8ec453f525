"use strict";
(() => {
  const number = (text) => (text.trim() === "" ? NaN : Number(text));
  const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;

  function compare(first, second) {
    const [a, b] = [number(first), number(second)];
    if (!Number.isNaN(a) && !Number.isNaN(b)) return a - b;
    if (Number.isNaN(a) !== Number.isNaN(b)) return Number.isNaN(a) ? 1 : -1;
    return first.localeCompare(second);
  }

  function sort(head) {
    const table = head.closest("table");
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => (down ? -1 : 1) * compare(value(a, head.cellIndex), value(b, head.cellIndex)));
    table.tBodies[0].append(...rows);
  }

  function filter(input) {
    const wanted = input.value.trim().toLocaleLowerCase();
    const rows = document.getElementById(input.dataset.target + "-table").tBodies[0].rows;
    let shown = 0;
    for (const row of rows) {
      const gallery = document.getElementById(row.dataset.group);
      const fits = (row.textContent + gallery.textContent).toLocaleLowerCase().includes(wanted);
      row.hidden = gallery.hidden = !fits;
      shown += fits;
    }
    input.parentElement.querySelector("output").textContent = wanted ? `${shown} of ${rows.length} groups` : "";
  }

  function open() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) {
      target.open = true;
      target.scrollIntoView();
    }
  }

  for (const button of document.querySelectorAll(".sortable th button")) {
    button.addEventListener("click", () => sort(button.closest("th")));
  }
  for (const input of document.querySelectorAll("input[data-target]")) {
    input.addEventListener("input", () => filter(input));
  }
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
  open();
})();
