// Times in the time zone of the box, which may not be that of the browser.

const FIELDS = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

export class TimeZone {
  // `offsetMin`: minutes east of UTC now, for a zone that the browser does not know.
  constructor(name, offsetMin) {
    this.name = name;
    this.offsetMs = offsetMin * 60_000;
    try {
      this.format = new Intl.DateTimeFormat("en-GB", { ...FIELDS, timeZone: name });
    } catch {
      this.format = null;
    }
  }

  // What its clock shows, as if it was UTC.
  shown(unixMs) {
    if (this.format === null) return new Date(unixMs + this.offsetMs);
    const part = Object.fromEntries(this.format.formatToParts(unixMs).map(({ type, value }) => [type, Number(value)]));
    return new Date(Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second));
  }

  clock(unixMs) {
    return this.shown(unixMs).toISOString().slice(11, 19);
  }

  // Thu 2026-11-26
  day(unixMs) {
    const shown = this.shown(unixMs);
    return `${DAYS[shown.getUTCDay()]} ${shown.toISOString().slice(0, 10)}`;
  }

  minute(unixMs) {
    return `${this.day(unixMs)} ${this.clock(unixMs).slice(0, 5)}`;
  }

  // Of a field for date and time.
  field(unixMs) {
    return this.shown(unixMs).toISOString().slice(0, 16);
  }

  // Of such a field. An hour that the clock shows twice is the first one.
  unixMs(field) {
    const wanted = Date.parse(`${field}Z`);
    const at = (guess) => wanted - (this.shown(guess).getTime() - guess);
    return at(at(wanted));
  }
}
