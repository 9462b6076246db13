// The filter of the matrix. Its state is in the address, so that what is shown can be linked.
"use strict";

const form = document.getElementById("filter");
const matrix = document.getElementById("matrix");
const columns = matrix.dataset.columns.trim().split(" ");
const rows = [...matrix.querySelectorAll("tr[id]:not(.chapter)")];

function wanted(row, asked) {
  const chapter = row.parentElement.dataset.chapter;
  const cells = [...row.cells].slice(1).map((cell) => cell.className.slice("v-".length));
  const looked = asked.column ? [cells[columns.indexOf(asked.column)]] : cells;
  const text = row.cells[0].textContent.toLowerCase();
  const judged = new Set(cells.filter((verdict) => verdict !== "none"));
  return (
    (!asked.chapter || asked.chapter === chapter) &&
    (!asked.verdict || looked.includes(asked.verdict)) &&
    (!asked.differ || judged.size > 1) &&
    (asked.q || "").toLowerCase().split(/\s+/).every((word) => text.includes(word))
  );
}

function show() {
  const asked = Object.fromEntries([...new FormData(form)].filter(([, value]) => value));
  let count = 0;
  for (const row of rows) {
    row.hidden = !wanted(row, asked);
    count += row.hidden ? 0 : 1;
  }
  for (const body of matrix.tBodies) {
    body.hidden = !body.querySelector("tr[id]:not(.chapter):not([hidden])");
  }
  document.getElementById("shown").value = `${count} of ${rows.length} clauses`;
  return new URLSearchParams(asked).toString();
}

function remember() {
  const query = show();
  const anchor = location.hash;
  history.replaceState(null, "", (query ? `?${query}` : location.pathname) + anchor);
}

function recall() {
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
form.addEventListener("input", remember);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(remember));
recall();
