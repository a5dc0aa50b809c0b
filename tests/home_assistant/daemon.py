"""Shows a real Home Assistant the daemon at work: the drawn street, the embedded model, a broker.

    python daemon.py HOST PORT PAGE RECIPES

The daemon of street.toml publishes to the broker at HOST:PORT. Every entity that it told of must leave "unknown" by what it sees
and says, and what is set in Home Assistant must come back as the state that the daemon confirms. PAGE is the address of its page, and
RECIPES is docs/recipes.md, whose automations notify a phone and mark events.
"""

import asyncio
import json
import logging
import pathlib
import sys
import tempfile
import time

import paho.mqtt.client as paho

import check
import phone

OF = "spotter_edge1_street_"
TRIGGER = "home/watch"
COMMANDS = check.BASE + "cmd"
# The model on a slow processor, and traffic of the street that has to come by.
LIMIT_S = 240


class Told:
    """The records that the broker keeps: what Home Assistant was told of; and the commands to the node."""

    def __init__(self, host, port):
        self.entities = {}
        self.records = {}
        self.commands = []
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.client.on_message = self.on_message
        self.client.connect(host, port)
        self.client.subscribe([("homeassistant/device/+/config", 1), (COMMANDS, 1)])
        self.client.loop_start()

    def say(self, topic, payload, retain=True):
        """A message of another program."""
        self.client.publish(topic, payload, 1, retain).wait_for_publish(LIMIT_S)

    def on_message(self, _client, _userdata, message):
        if message.topic == COMMANDS:
            self.commands.append(json.loads(message.payload))
        elif message.payload:
            self.records[message.topic] = json.loads(message.payload)
            self.entities.update(check.entities({"records": [(message.topic, self.records[message.topic])]}))


class Daemon(check.Check):
    LIMIT_S = LIMIT_S

    def __init__(self, hass, told):
        super().__init__(hass, None)
        self.told = told

    async def triggered(self, payload, state, **others):
        """A message of another program, and what became of the trigger that reads it."""
        await self.publish(self.told.say, TRIGGER, payload)
        await self.shows(f"{TRIGGER} {payload}: the trigger is {state}", {"trigger_watch": state, **others})

    async def all_leave_unknown(self):
        began = time.monotonic()

        def known():
            # A button is unknown until it is pressed.
            return [u for u, entity in self.told.entities.items() if "payload_press" not in entity]

        def amiss():
            shown = {unique_id: self.shown(unique_id) for unique_id in known()}
            return {u: s for u, s in shown.items() if s in (None, "unknown", "unavailable")} or ([] if shown else ["no record"])

        await self.until("entities of the daemon", amiss, LIMIT_S)
        print(f"daemon: {len(known())} of {len(self.told.entities)} entities left unknown within {time.monotonic() - began:.0f} s", flush=True)

    async def call(self, domain, service, key, **data):
        entity = {"entity_id": self.ids()[OF + key]}
        await self.hass.services.async_call(domain, service, entity | data, blocking=True)

    async def shows(self, what, wanted):
        shown = lambda: {key: (self.shown(OF + key), state) for key, state in wanted.items() if self.shown(OF + key) != state}
        await self.until(what, shown)
        print(f"daemon: {what}", flush=True)

    async def counts(self):
        """Cars cross the line both ways, and a button sets its counts to 0."""
        event = self.hass.states.get(self.ids()[OF + "car_crossing_middle"])
        counts = {way: self.shown(f"{OF}car_line_middle_{way}") for way in ("in", "out")}
        assert event.attributes["count"] >= 1 and event.attributes["event_type"] in counts, event
        assert any(int(count) > 0 for count in counts.values()), counts
        # No car crosses while the camera waits.
        await self.triggered("OFF", "off", car_count="unknown")
        await self.call("button", "press", "line_middle_reset")
        await self.shows("counts at a line are reset", {f"car_line_middle_{way}": "0" for way in counts})
        await self.triggered("ON", "on")

    async def settings(self):
        """Each is confirmed by the daemon, and the last two show what they do."""
        await self.call("number", "set_value", "rate", value=3)
        await self.call("number", "set_value", "person_min_score", value=0.25)
        await self.call("text", "set_value", "person_prompt", value="red car")
        await self.call("switch", "turn_on", "motion_gate")
        await self.shows("what was set is confirmed",
                         {"rate": "3", "person_min_score": "0.25", "person_prompt": "red car", "motion_gate": "on"})
        await self.call("switch", "turn_off", "motion_gate")
        await self.call("switch", "turn_off", "car_enabled")
        await self.shows("a prompt that is off is unknown", {"car_enabled": "off", "car_present": "unknown", "car_count": "unknown"})
        await self.call("switch", "turn_off", "enabled")
        await self.shows("a camera that is off is away, but for its switch", {"enabled": "off", "person_present": "unavailable"})
        await self.call("switch", "turn_on", "enabled")
        await self.shows("and comes back", {"enabled": "on", "state": "streaming"})
        for option, rate in [("night", "1"), ("No mode", "2")]:
            entity = {"entity_id": self.ids()["spotter_edge1_mode"], "option": option}
            await self.hass.services.async_call("select", "select_option", entity, blocking=True)
            await self.until("mode", lambda: {option: self.shown("spotter_edge1_mode")} if self.shown("spotter_edge1_mode") != option else {})
            await self.shows(f"mode {option!r} replaces what was set", {"rate": rate})


async def run(host, port, page, recipes):
    with tempfile.TemporaryDirectory() as directory:
        told = Told(host, port)
        hass = await check.home_assistant(directory, host, port)
        try:
            daemon = Daemon(hass, told)
            await daemon.shows("a camera waits for its trigger", {"trigger_watch": "off", "person_present": "unknown"})
            await daemon.triggered("ON", "on")
            await daemon.all_leave_unknown()
            automations = phone.Recipes(daemon, page)
            await automations.set_up(pathlib.Path(recipes).read_text())
            await automations.marks()
            await daemon.counts()
            await daemon.settings()
            await daemon.triggered("OFF", "off", person_present="unknown")
            await automations.one_notification_an_event()
        finally:
            await hass.async_stop(force=True)


def main():
    host, port, page, recipes = sys.argv[1:]
    complaints = check.Complaints()
    logging.getLogger().addHandler(complaints)
    asyncio.run(run(host, int(port), page, recipes))
    complaints.end()


main()
