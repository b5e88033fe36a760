(() => {
  "use strict";
  const shared = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const look = (isDark) => ({
    layout: {
      font: { color: isDark ? "#ece9f4" : "#211d2e", family: getComputedStyle(document.body).fontFamily, size: 12 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { align: "left" },
    },
  });
  const places = [...document.querySelectorAll("[data-chart]")];

  function draw() {
    for (const place of places) {
      const { data, layout, config } = shared.charts[place.dataset.chart].figure;
      Plotly.react(place, data, { ...layout, autosize: true, template: look(dark.matches) }, config);
    }
  }

  // A picture is for paper: dark text on white, whatever the screen shows.
  function picture(button) {
    const { name, figure } = shared.charts[button.dataset.of];
    const place = places[button.dataset.of];
    const layout = { ...figure.layout, template: look(false), paper_bgcolor: "#ffffff" };
    const size = { width: place.clientWidth, height: place.clientHeight };
    Plotly.downloadImage({ data: figure.data, layout }, { format: button.dataset.picture, filename: name, scale: 2, ...size });
  }

  function cell(value) {
    if (value === null) return "";
    let text = typeof value === "object" ? JSON.stringify(value) : String(value);
    // A spreadsheet would take such a text for a formula.
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  }

  function csv(button) {
    const table = shared.tables[button.dataset.csv];
    // The marks stand in every row: the file goes on alone.
    const marks = shared.marks.length ? shared.marks.join("; ") : null;
    const rows = marks === null ? table.rows : table.rows.map((row) => [...row, marks]);
    const heads = marks === null ? table.columns : [...table.columns, "marks"];
    const lines = [heads, ...rows].map((row) => row.map(cell).join(",") + "\n");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
    link.download = table.name + ".csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  if (places.length) {
    draw();
    dark.addEventListener("change", draw);
  }
  for (const button of document.querySelectorAll("[data-picture]")) button.onclick = () => picture(button);
  for (const button of document.querySelectorAll("[data-csv]")) button.onclick = () => csv(button);
})();
