"""The site of docs/: it builds without a warning, holds every public name, links nowhere in vain, and loads nothing."""

import importlib
import os
import re
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urldefrag

import pytest

import lowsparse as ls
from lowsparse.solvers.parameters import parameters_of
from test_report import wait

ROOT = Path(__file__).parents[1]
if not (ROOT / "docs").is_dir():
    pytest.skip("a source distribution has no docs", allow_module_level=True)
pytest.importorskip("mkdocs", reason="the site needs the extra docs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")
pytestmark = pytest.mark.slow

MODULES = ("lowsparse", "estimators", "solvers", "plots", "datasets", "tables", "video")
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}

# Whether all code, which may scroll, can be reached by keyboard once the theme has seen the new width.
REACHED = """
const reached = () => [...document.querySelectorAll("pre code")].every((part) => part.tabIndex === 0);
setTimeout(() => arguments[0](reached()), 300);
"""


class Page(HTMLParser):
    """The ids, links, loaded files and pictures without a text of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded, self.silent, self.words = set(), [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, pairs):
        attributes = dict(pairs)
        self.ids.add(attributes.get("id"))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if tag in LOADED and attributes.get(LOADED[tag]):
            self.loaded.append(attributes[LOADED[tag]])
        if tag == "img" and not attributes.get("alt"):
            self.silent.append(attributes)

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"MPLBACKEND": "agg", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path.relative_to(site): Page(path.read_text("utf-8")) for path in site.rglob("*.html")}


def test_every_public_name_is_in_the_reference(pages):
    known = {anchor for path, page in pages.items() if path.parts[0] == "reference" for anchor in page.ids}
    for name in MODULES:
        module = importlib.import_module(name if name == "lowsparse" else f"lowsparse.{name}")
        for exported in module.__all__:
            value = getattr(module, exported)
            if exported in MODULES or exported == "__version__":
                continue
            home = f"{getattr(value, '__module__', module.__name__)}.{getattr(value, '__qualname__', exported)}"
            assert home in known, exported


def test_parameters_have_their_own_types(pages):
    said = " ".join(" ".join(pages[Path("reference", "estimators.html")].words).split())
    assert re.search(r"backend \( ?str , default: 'auto' ?\)", said)
    assert not re.search(r"backend \( ?int", said)


@pytest.mark.parametrize("name", ls.solvers.names())
def test_every_method_has_a_page(pages, name):
    said = " ".join(pages[Path("method", f"{name}.html")].words)
    method = type(ls.solvers.from_name(name))
    assert method.__name__ in said
    for parameter in parameters_of(method):
        assert parameter in said
    assert "error of the default" in said


def test_links_and_anchors_lead_somewhere(pages, site):
    for path, page in pages.items():
        if path.name == "404.html":  # served from anywhere, so its links begin at the root
            continue
        for link in page.links:
            target, anchor = urldefrag(link)
            if "://" in target or target.startswith("mailto:"):
                continue
            found = (site / path.parent / unquote(target)).resolve() if target else (site / path).resolve()
            assert found.is_file(), (path, link)
            if anchor and found.suffix == ".html":
                assert unquote(anchor) in pages[found.relative_to(site.resolve())].ids, (path, link)


def test_nothing_is_loaded_from_elsewhere(pages, site):
    for path, page in pages.items():
        assert not [source for source in page.loaded if "://" in source or source.startswith("//")], path
    for sheet in site.rglob("*.css"):
        assert "url(http" not in sheet.read_text("utf-8")


def test_every_picture_says_what_it_shows(pages):
    for path, page in pages.items():
        assert not page.silent, path


def test_a_page_with_faults_is_noticed():
    page = Page('<p id="a"><a href="b.html">b</a><img src="https://x/y.png"><script src="//z"></script>')
    assert page.ids == {"a", None}
    assert page.links == ["b.html"]
    assert page.loaded == ["https://x/y.png", "//z"]
    assert len(page.silent) == 1


@pytest.fixture(scope="module")
def address(site):
    """Where a web server on this machine shows the site."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("opened", ["from a server", "from a file"])
def test_search_finds_names_without_a_network(browser, address, site, opened):
    browser.get(f"{address if opened == 'from a server' else site.as_uri()}/index.html")
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["https://*"]})
    browser.find_element("css selector", "body").send_keys("/")  # opens the search
    browser.switch_to.active_element.send_keys("RobustSeriesImputer")
    found = wait(browser, lambda: browser.find_elements("css selector", ".md-search-result__item a"))
    assert any("reference/estimators.html" in link.get_attribute("href") for link in found)
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("page", ["index", "guide", "method/index", "method/hankel", "reference/solve", "benchmarks"])
def test_a_phone_shows_pages_without_scrolling_sideways(browser, address, page):
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    browser.get(f"{address}/{page}.html")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    for turned in ({"width": 844, "height": 390}, {}):
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone | turned)
        assert browser.execute_async_script(REACHED)
