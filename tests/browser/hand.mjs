/** A person before the page: it clicks where something is in sight, never scrolls, and is counted. */
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { PATIENCE } from "./browser.mjs";

export class Hand {
  /** @param {import("playwright-core").Page} page */
  constructor(page) {
    this.page = page;
    this.done = { clicks: 0, keys: 0, texts: 0 };
  }

  /** Waits until it is within the window, and nothing lies over it. */
  async sees(locator) {
    await locator.waitFor();
    let why;
    for (const end = Date.now() + PATIENCE; Date.now() < end; await pause(50)) {
      why = await locator.evaluate(whyHidden).catch((error) => error.message);
      if (why === "") return;
    }
    assert.fail(`${locator} is not in sight: ${why}`);
  }

  /** When it can be clicked. @param {{across?: number, down?: number, held?: string}} [where] parts of it, and a key that is held */
  async click(locator, { across = 0.5, down = 0.5, held } = {}) {
    await this.sees(locator);
    await this.page.waitForFunction((element) => !element.disabled, await locator.elementHandle());
    const { x, y, width, height } = await locator.boundingBox();
    if (held) await this.page.keyboard.down(held);
    await this.page.mouse.click(x + width * across, y + height * down);
    if (held) await this.page.keyboard.up(held);
    this.done.clicks += 1;
  }

  /** Draws from one place of it to another, with the button down: as much as a click. @param {{from: number, to: number, down: number}} where */
  async drag(locator, { from, to, down }) {
    await this.sees(locator);
    const { x, y, width, height } = await locator.boundingBox();
    await this.page.mouse.move(x + width * from, y + height * down);
    await this.page.mouse.down();
    await this.page.mouse.move(x + width * to, y + height * down);
    await this.page.mouse.up();
    this.done.clicks += 1;
  }

  async press(key) {
    await this.page.keyboard.press(key);
    this.done.keys += 1;
  }

  /** Types a text where the focus is. */
  async type(text) {
    await this.page.keyboard.type(text);
    this.done.texts += 1;
  }
}

/** Runs in the page. */
function whyHidden(element) {
  const [{ top, left, bottom, right }] = element.getClientRects();
  if (top < 0 || left < 0 || bottom > innerHeight || right > innerWidth) return "it is outside of the window";

  const found = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  return element.contains(found) ? "" : `${found?.outerHTML.slice(0, 200)} is there`;
}
