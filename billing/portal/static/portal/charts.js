// Draw the charts of `billing.portal.charts` with Chart.js. Every value comes with its text; only positions are computed here.
(() => {
  const SOFT = "-soft";
  const colourOf = (name) => {
    const base = name.endsWith(SOFT) ? name.slice(0, -SOFT.length) : name;
    const value = getComputedStyle(document.documentElement).getPropertyValue(`--${base}`).trim();
    return name.endsWith(SOFT) ? `${value}73` : value;
  };
  const number = (value) => (value === null ? null : Array.isArray(value) ? value.map(Number) : Number(value));

  const setOf = (series, index, lying) => {
    const colour = colourOf(series.colour);
    const set = { label: series.name, data: series.values.map(number), borderColor: colour, backgroundColor: colour, texts: series.texts, links: series.links };
    if (series.kind === "stack") {
      return { ...set, type: "bar", stack: "all", borderWidth: 0, maxBarThickness: 64, categoryPercentage: 0.9, barPercentage: 0.92 };
    }
    if (series.kind === "bars") {
      const colours = series.colours.length ? series.colours.map(colourOf) : colour;
      return { ...set, type: "bar", backgroundColor: colours, borderWidth: 0, minBarLength: lying ? 0 : 2, maxBarThickness: lying ? 22 : 64 };
    }
    const edge = series.kind === "edge" || series.kind === "band";
    return {
      ...set, type: "line", stack: `line ${index}`, spanGaps: true, pointHitRadius: 12, pointRadius: series.values.filter((v) => v !== null).length < 2 ? 3 : 0,
      borderWidth: edge ? 0 : series.kind === "line" ? 2.5 : 1.5, borderDash: series.kind === "dashed" ? [6, 4] : [],
      fill: series.kind === "band" ? index - 1 : false, backgroundColor: edge ? `${colour}38` : colour,
    };
  };

  const optionsOf = (chart, canvas) => {
    const ticks = { color: colourOf("soft"), maxRotation: 0, font: { size: 11 } };
    const piled = chart.lying || chart.series.some((series) => series.kind === "stack");
    const title = (text) => ({ display: Boolean(text), text, color: colourOf("soft"), font: { size: 11 } });
    const few = chart.lying || chart.labels.length <= 10;
    const names = { grid: { display: false }, border: { color: colourOf("hair-strong") }, ticks: { ...ticks, autoSkip: !few, autoSkipPadding: 12, maxRotation: few && !chart.lying ? 45 : 0 }, title: title(chart.across), stacked: piled };
    const values = { beginAtZero: chart.from_zero, grid: { color: colourOf("hair") }, border: { display: false }, ticks: { ...ticks, maxTicksLimit: 6, autoSkipPadding: 12 }, title: title(chart.axis), grace: chart.written ? "15%" : 0, stacked: piled };
    const leads = (event) => {
      const [under] = event.chart.getElementsAtEventForMode(event, "nearest", { intersect: true }, false);
      const own = under && chart.series[under.datasetIndex].links[under.index];
      const [column] = event.chart.getElementsAtEventForMode(event, "index", { axis: chart.lying ? "y" : "x", intersect: false }, false);
      return own || (column && chart.links[column.index]);
    };
    return {
      animation: false, maintainAspectRatio: false, locale: document.documentElement.lang, indexAxis: chart.lying ? "y" : "x",
      interaction: { mode: "index", axis: chart.lying ? "y" : "x", intersect: false },
      scales: chart.lying ? { x: values, y: names } : { x: names, y: values },
      plugins: {
        legend: { display: chart.legend && chart.series.length > 1, align: "end", labels: { color: colourOf("soft"), boxWidth: 10, boxHeight: 10, font: { size: 11 } } },
        tooltip: {
          filter: (item) => item.raw !== null && !(piled && !chart.lying && item.raw === 0),
          callbacks: { label: (item) => [item.dataset.label, item.dataset.texts[item.dataIndex], chart.unit].filter(Boolean).join(" ") },
        },
      },
      onClick: (event) => { const link = leads(event); if (link) window.location.assign(link); },
      onHover: (event) => { canvas.classList.toggle("leads", Boolean(leads(event))); },
    };
  };

  // Write the text of each bar beside it, the totals first; a text that would cover another is left to tooltip and table.
  const written = {
    id: "written",
    afterDatasetsDraw(drawn) {
      const { ctx: pen, chartArea: area } = drawn;
      const lying = drawn.options.indexAxis === "y";
      const bars = drawn.getDatasetMeta(0).data;
      const taken = [];
      pen.save();
      pen.font = `11px ${Chart.defaults.font.family}`;
      pen.fillStyle = colourOf("ink");
      pen.textBaseline = "middle";
      [bars.length - 1, ...bars.keys()].slice(0, bars.length).forEach((index) => {
        const text = drawn.data.datasets[0].texts[index];
        const { x, y, base } = bars[index].getProps(["x", "y", "base"], true);
        const wide = pen.measureText(text).width;
        const left = lying ? Math.min(Math.max(x, base) + 5, area.right - wide) : Math.min(Math.max(x - wide / 2, 0), drawn.width - wide);
        const middle = lying ? y : Math.min(y, base) - 8;
        const clear = taken.every(([from, to, at]) => left > to + 3 || left + wide < from - 3 || Math.abs(at - middle) > 11);
        if (!clear) return;
        taken.push([left, left + wide, middle]);
        pen.fillText(text, left, middle);
      });
      pen.restore();
    },
  };

  const draw = (canvas) => {
    Chart.getChart(canvas)?.destroy();
    const chart = JSON.parse(canvas.dataset.chart);
    const datasets = chart.series.map((series, index) => setOf(series, index, chart.lying));
    new Chart(canvas, { data: { labels: chart.labels, datasets }, options: optionsOf(chart, canvas), plugins: chart.written ? [written] : [] });
  };
  const all = (root) => [...(root.matches?.("canvas[data-chart]") ? [root] : []), ...(root.querySelectorAll?.("canvas[data-chart]") ?? [])];

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  document.addEventListener("htmx:load", (event) => all(event.detail.elt).filter((canvas) => !Chart.getChart(canvas)).forEach(draw));
  document.addEventListener("htmx:beforeCleanupElement", (event) => all(event.detail.elt).forEach((canvas) => Chart.getChart(canvas)?.destroy()));
  all(document).forEach(draw);
  const again = () => all(document).forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  document.addEventListener("themechange", again);
  addEventListener("beforeprint", () => { again(); all(document).forEach((canvas) => Chart.getChart(canvas)?.resize()); });
  addEventListener("afterprint", again);
})();
