"""What a page does to people who do not see it, or see it on a small screen."""

from __future__ import annotations

from console.browser import PACKAGES
from playwright.async_api import Page


async def find_violations(page: Page) -> list[str]:
    """What axe finds. It runs in a world of its own, since the page's policy lets no other script in."""
    source = (PACKAGES / "axe-core/axe.min.js").read_text()
    session = await page.context.new_cdp_session(page)
    tree = await session.send("Page.getFrameTree")
    frame = tree["frameTree"]["frame"]["id"]
    world = await session.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "axe"})
    context = world["executionContextId"]
    await session.send("Runtime.evaluate", {"expression": source, "contextId": context})
    expression = "axe.run(document).then(found => JSON.stringify(found.violations.map(v => "
    expression += "[v.id, v.nodes.map(n => n.html + ' ' + n.failureSummary)])))"
    reply = await session.send(
        "Runtime.evaluate",
        {"expression": expression, "contextId": context, "awaitPromise": True, "returnByValue": True},
    )
    value = reply["result"]["value"]
    return [] if value == "[]" else [str(value)]


async def scrolls_sideways(page: Page) -> bool:
    """Whether the page is wider than its window once it is drawn. A chart follows a new width some frames later."""
    script = """
        new Promise(resolve => {
            const isWide = () =>
                [document.documentElement, document.querySelector('main')].some(e => e.scrollWidth > e.clientWidth + 1)
                || [...document.querySelectorAll('main *')].some(e => {
                    const box = e.getBoundingClientRect();
                    return box.width > 0 && box.right > innerWidth + 1
                        && !e.closest('.table-scroll, .visually-hidden, thead')
                });
            const end = performance.now() + 5000;
            const look = () => {
                const wide = isWide();
                if (!wide || performance.now() > end) resolve(wide);
                else requestAnimationFrame(look);
            };
            look();
        })
    """
    return bool(await page.evaluate(script))
