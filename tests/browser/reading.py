"""What every page must allow its readers: text that can be read in both themes, controls that have names, and all of it on a phone
as well as on a wide screen.
"""

LOOKS = ((1440, "light"), (390, "dark"))
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"

CONTRAST = """
() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = text;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), rgba("Canvas"));
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!says || !element.checkVisibility({ visibilityProperty: true }) || element.closest(".visually-hidden, option, .skip-link")) continue;
    const style = getComputedStyle(element), under = behind(element);
    const [a, b] = [light(over(rgba(style.color), under)), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (ratio < least) poor.push(`${element.textContent.trim().slice(0, 40)} (${element.className}): ${ratio.toFixed(2)}`);
  }
  return poor;
}
"""
NAMELESS = """
() => [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href]")]
  .filter((e) => !(e.labels?.length || e.textContent.trim() || e.getAttribute("aria-label") || e.title))
  .map((e) => e.outerHTML)
"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def fits(w, *acts):
    """The page is no wider than a wide screen or a phone's, and on both can be clicked what `acts` find. A journey need not be made
    twice for it: the window is a phone afterwards.
    """
    for width, scheme in LOOKS:
        w.page.set_viewport_size({"width": width, "height": 900})
        w.page.emulate_media(color_scheme=scheme)
        assert w.page.evaluate(FITS), (w.page.url, width)
        for act in acts:
            act.click(trial=True)


def look(w, path):
    """All text of the window's page can be read, and every control has a name. The window has reduced motion, so that colours change
    immediately.
    """
    backgrounds = []
    for scheme in ("light", "dark"):
        w.page.emulate_media(color_scheme=scheme)
        assert w.page.evaluate(CONTRAST) == [], (path, scheme)
        backgrounds.append(w.page.evaluate(BACKGROUND))
    assert len(set(backgrounds)) == 2, path
    assert w.page.evaluate(NAMELESS) == [], path
