// A session's page: kernels over time, drawn by the library.
async function main() {
  const data = (window.report = JSON.parse(new TextDecoder().decode(await unpacked("packed"))));
  await readLibrary();
  drawBusy(data);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawBusy(data));
  document.body.dataset.ready = "all";
}

main().catch((error) => {
  document.getElementById("hint").textContent = `This page can't be drawn here: ${error}`;
  throw error;
});
