"""Looks at the site as a browser lays it out: `python tools/look_at_site.py build/site`.

Headless Chromium (Debian's, or any of the names below) opens each page as wide as a screen and as
a telephone. Says, and exits with 1, where a picture is missing, a page has no text or does not fit
the width, a link leads to no place of the page, something is not served or a script fails. Without
a browser it says so and exits with 0.
"""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = (1280, 390)
LIMIT_S = 300
LOOK = "/look_at_site"

# Opens one page after the other in a frame, asks the layout, and sends what is wrong.
SCRIPT = """<!doctype html><iframe id="frame" height="900"></iframe><script>
const frame = document.getElementById("frame");
const open = (page, width) => new Promise(resolve => {
  frame.width = width;
  frame.onload = () => resolve(frame.contentDocument);
  frame.src = "/" + page;
});
function faults(page) {
  const found = [];
  const root = page.documentElement;
  if (root.scrollWidth > root.clientWidth + 1)
    found.push(`is ${root.scrollWidth} wide where ${root.clientWidth} are shown`);
  const text = page.querySelector("article");
  const isSearch = page.location.pathname == "/search.html";  // which has text when one searches
  if (!isSearch && (!text || text.innerText.trim().length < 40 || text.offsetHeight < 40))
    found.push("shows no text");
  for (const image of page.images)
    if (!image.complete || !image.naturalWidth) found.push("lacks the picture " + image.src);
  for (const link of page.querySelectorAll("article a[href^='#']")) {
    const name = decodeURIComponent(link.getAttribute("href").slice(1));
    if (name && !page.getElementById(name)) found.push("has no place called " + name);
  }
  return found;
}
async function look(pages, widths) {
  const wrong = [];
  for (const page of pages) for (const width of widths) {
    const shown = await open(page, width);
    for (const image of shown.images) image.loading = "eager";
    await Promise.all(Array.from(shown.images, image => image.decode().catch(() => null)));
    for (const fault of faults(shown)) wrong.push(`${page} (${width} pixels) ${fault}`);
  }
  return wrong;
}
look(PAGES, WIDTHS).catch(error => ["the script failed: " + error])
  .then(wrong => fetch("LOOK", {method: "POST", body: JSON.stringify(wrong)}));
</script>"""


class Site(http.server.ThreadingHTTPServer):
    """Serves a folder, and the script that looks at its pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = sorted(str(page.relative_to(folder)) for page in folder.rglob("*.html"))
        self.wrong: list[str] = []
        self.is_seen = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    def script(self) -> bytes:
        text = SCRIPT.replace("PAGES", json.dumps(self.pages)).replace("LOOK", LOOK)
        return text.replace("WIDTHS", json.dumps(WIDTHS)).encode()


class Handler(http.server.SimpleHTTPRequestHandler):
    server: Site

    def __init__(self, request: Any, address: Any, server: Site) -> None:
        super().__init__(request, address, server, directory=str(server.folder))

    def do_GET(self) -> None:
        if self.path != LOOK:
            super().do_GET()
            return
        script = self.server.script()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(script)))
        self.end_headers()
        self.wfile.write(script)

    def do_POST(self) -> None:
        told = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.wrong += json.loads(told)
        self.send_response(204)
        self.end_headers()
        self.server.is_seen.set()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        if str(code) == "404" and self.path != "/favicon.ico":
            self.server.wrong.append(f"{self.path} is not there")

    def log_message(self, *_arguments: object) -> None:
        """The server's own errors are those of a browser that has gone."""


def look(browser: str, folder: Path) -> list[str]:
    site = Site(folder)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--disable-dev-shm-usage", f"--user-data-dir={profile}"]
        command += ["--remote-debugging-port=0", f"http://127.0.0.1:{site.server_port}{LOOK}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        is_seen = site.is_seen.wait(LIMIT_S)
        process.terminate()
        process.wait()
    site.shutdown()
    if not is_seen:
        site.wrong.append(f"{browser} has not looked at {len(site.pages)} pages in {LIMIT_S} s")
    return site.wrong


def main() -> int:
    folder = Path(sys.argv[1])
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("not looked at: no Chromium here")
        return 0
    wrong = look(browser, folder)
    for fault in dict.fromkeys(wrong):
        print(fault)
    print(f"looked at {folder} as {' and '.join(map(str, WIDTHS))} pixels: {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
