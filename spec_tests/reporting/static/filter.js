// The filter of the matrix. Its state is in the address, so that users can link to a selection.
"use strict";

const form = document.getElementById("filter");
const matrix = document.getElementById("matrix");
const columns = matrix.dataset.columns.trim().split(" ");
const rows = [...matrix.querySelectorAll("tr[id]:not(.chapter)")];

function matches(row, filter) {
  const chapter = row.parentElement.dataset.chapter;
  const cells = [...row.cells].slice(1).map((cell) => cell.className.slice("v-".length));
  const verdictIn = (name) => cells[columns.indexOf(name)];
  const selected = filter.column ? [verdictIn(filter.column)] : cells;
  const text = row.cells[0].textContent.toLowerCase();
  const judged = new Set(cells.filter((verdict) => verdict));
  return (
    (!filter.chapter || filter.chapter === chapter) &&
    (!filter.verdict || selected.includes(filter.verdict)) &&
    (!filter.other || selected.some((verdict) => verdict !== verdictIn(filter.other))) &&
    (!filter.differ || judged.size > 1) &&
    (filter.q || "").toLowerCase().split(/\s+/).every((word) => text.includes(word))
  );
}

function show() {
  const filter = Object.fromEntries([...new FormData(form)].filter(([, value]) => value));
  let count = 0;
  for (const row of rows) {
    row.hidden = !matches(row, filter);
    count += row.hidden ? 0 : 1;
  }
  for (const body of matrix.tBodies) {
    body.hidden = !body.querySelector("tr[id]:not(.chapter):not([hidden])");
  }
  document.getElementById("shown").value = `${count} of ${rows.length} clauses`;
  return new URLSearchParams(filter).toString();
}

function saveState() {
  const query = show();
  const anchor = location.hash;
  history.replaceState(null, "", (query ? `?${query}` : location.pathname) + anchor);
}

function restoreState() {
  for (const [name, value] of new URLSearchParams(location.search)) {
    const field = form.elements.namedItem(name);
    if (field && field.type === "checkbox") {
      field.checked = value === "1";
    } else if (field) {
      field.value = value;
    }
  }
  show();
}

form.hidden = false;
document.getElementById("no-filter").hidden = true;
form.addEventListener("input", saveState);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(saveState));
restoreState();
