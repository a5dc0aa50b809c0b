"""Shows a real Home Assistant what Spotter tells it, and asks what became of every entity.

    python check.py STEPS HOST PORT

STEPS is what the example `records` printed for device.toml and less.toml. Home Assistant runs in
this process with its MQTT integration alone; the broker at HOST:PORT is empty before.
"""

import asyncio
import json
import logging
import pathlib
import socket
import sys
import tempfile
import unittest.mock

# The integration of the app on a phone imports those of sound and pictures, whose packages need a compiler. None of them is used.
for package in ("pymicro_vad", "pyspeex_noise", "turbojpeg"):
    sys.modules[package] = unittest.mock.MagicMock()

import paho.mqtt.client as paho
from homeassistant import bootstrap, config_entries, core, loader
from homeassistant.core_config import async_process_ha_core_config
from homeassistant.helpers import device_registry, entity_registry
from homeassistant.setup import async_setup_component

BASE = "spotter/edge1/"
CAMERAS = ["front_door", "yard"]
PROMPTS = {"front_door": ["person", "hook", "parcel"], "yard": ["car"]}
LONG = "Nothing happens. " * 40
QUESTIONS = ["door_open", "weather", "scene", "why_open"]
CAPTIONS = ["view"]
LIMIT_S = 30

# What has been said and stays: the value of each state, by the end of its topic.
HEALTH = {"v": 1, "state": "streaming", "reason": None, "attempts": 0}
STATS = {"v": 1, "cams_online": 2, "cams_total": 2, "lat_total_p95_ms": 88.0, "lat_over_budget": 1,
         "gpu0_busy_pct": 71.0}
EVENT = {"v": 1, "type": "update", "event": "b7c1-front_door-1", "reason": "described", "description": "It waves.", "zones": ["drive"],
         "entered_zones": ["drive"], "dwell_s": {"drive": 31.5}, "dwelling": ["drive"], "score": 0.83,
         "delayed": False, "start_ms": 1787393729900, "last_seen_ms": 1787393730123}
THOUGHT = {"v": 1, "answer": "Someone\nis leaving.", "reasoning": {"text": "A man carries a box out.", "grounding": []}}
CROSSING = {"v": 1, "event": "b7c1-front_door-1", "line": "kerb", "direction": "to_house", "at_ms": 1787393730023,
            "speed": None, "count": 7, "score": 0.83, "delayed": False}


def states(step):
    """Every retained state of the contract that was not cleared, below BASE."""
    answers = {e["state_topic"].removeprefix(BASE): e for e in entities(step).values() if "/answer/" in e.get("state_topic", "")}
    for topic, payload in all_states():
        if topic in answers:
            payload = answers[topic].get("payload_on") or answers[topic].get("options", [payload])[0]
        if BASE + topic not in step["gone"]:
            yield topic, payload


def all_states():
    yield "config", json.dumps({"v": 1, "state": "ok", "hash": "0", "at": "2026-08-22T10:15:30Z", "errors": []})
    yield "mode", "night"
    for camera in CAMERAS:
        of = f"cam/{camera}/"
        yield of + "status", "online"
        yield of + "health", json.dumps(HEALTH)
        yield of + "enabled", "ON"
        yield of + "rate", "2.5"
        yield of + "motion_gate", "OFF"
        prompts = PROMPTS[camera]
        for prompt in prompts:
            yield of + f"present/{prompt}", "ON"
            yield of + f"count/{prompt}", "3"
            yield of + f"zone/drive/{prompt}", "2"
            yield of + f"prompt/{prompt}/min_score", "0.4"
        questions, captions = (QUESTIONS, CAPTIONS) if camera == "front_door" else ([], [])
        for prompt in [*questions, *captions]:
            yield of + f"answer/{prompt}", LONG
        for prompt in [*prompts, *questions]:
            yield of + f"prompt/{prompt}/text", "some words"
        for prompt in [*prompts, *questions, *captions]:
            yield of + f"prompt/{prompt}/enabled", "ON"
    yield "cam/front_door/dwell/drive/person", "ON"
    yield "cam/front_door/trigger/bell", "ON"
    yield "cam/front_door/line/kerb/to_road/person", "5"
    yield "cam/front_door/line/kerb/to_house/person", "7"
    yield "status", "online"


def streams():
    """What is not retained: Home Assistant has to be there to hear it."""
    yield "stats", json.dumps(STATS)
    for camera in CAMERAS:
        for prompt in PROMPTS[camera]:
            yield f"cam/{camera}/event/{prompt}", json.dumps(EVENT)
    yield "cam/front_door/crossing/kerb/person", json.dumps(CROSSING)
    yield "cam/front_door/det/why_open", json.dumps(THOUGHT)
    for camera in CAMERAS:
        for prompt in PROMPTS[camera]:
            yield f"cam/{camera}/snapshot/{prompt}", b"\xff\xd8\xff\xe0 not a whole picture"


class Spotter:
    """The daemon's side of the broker."""

    def __init__(self, host, port):
        self.heard = []
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda _c, _u, message: self.heard.append(
            (message.topic, message.payload.decode(), message.retain))
        self.client.connect(host, port)
        self.client.subscribe([(BASE + "cam/+/+/set", 1), (BASE + "cam/+/prompt/+/+/set", 1),
                               (BASE + "cam/+/line/+/set", 1), (BASE + "mode/set", 1)])
        self.client.loop_start()

    def publish(self, topic, payload, retain=True):
        self.client.publish(topic, payload, 1, retain).wait_for_publish(LIMIT_S)

    def step(self, step):
        """In the order of the outbox: what is cleared, the records, the states."""
        for topic in step["gone"]:
            self.publish(topic, b"")
        for topic, payload in step["records"]:
            self.publish(topic, json.dumps(payload))
        for topic, payload in states(step):
            self.publish(BASE + topic, payload)

    def stream(self):
        for topic, payload in streams():
            self.publish(BASE + topic, payload, retain=False)


def entities(step):
    """The entities of a step: unique id, and what was said of each."""
    found = {}
    for _, record in step["records"]:
        for entity in record.get("components", {"": record}).values():
            if "unique_id" in entity:
                found[entity["unique_id"]] = entity
    return found


async def home_assistant(directory, host, port):
    """A Home Assistant with nothing but the MQTT integration."""
    pathlib.Path(directory, ".storage").mkdir()
    pathlib.Path(directory, "configuration.yaml").touch()
    hass = core.HomeAssistant(directory)
    hass.config.skip_pip = True
    loader.async_setup(hass)
    hass.config_entries = config_entries.ConfigEntries(hass, {})
    await bootstrap.async_load_base_functionality(hass)
    await async_process_ha_core_config(hass, {})
    # It listens where nobody looks, and to nobody else.
    with socket.create_server(("127.0.0.1", 0)) as free:
        web = {"http": {"server_host": "127.0.0.1", "server_port": free.getsockname()[1]}}
    assert await async_setup_component(hass, "http", web), "http"
    assert await async_setup_component(hass, "homeassistant", {}), "homeassistant"
    entry = config_entries.ConfigEntry(
        data={"broker": host, "port": port}, options={"discovery": True}, domain="mqtt", title="MQTT", source="user",
        unique_id=None, version=2, minor_version=1, discovery_keys={}, subentries_data=None)
    await hass.config_entries.async_add(entry)
    await hass.async_start()
    return hass


class Check:
    def __init__(self, hass, spotter):
        self.hass = hass
        self.spotter = spotter
        self.registry = entity_registry.async_get(hass)

    def ids(self):
        """Entity ids by unique id."""
        return {entry.unique_id: entry.entity_id for entry in self.registry.entities.values() if entry.platform == "mqtt"}

    def shown(self, unique_id):
        state = self.hass.states.get(self.ids().get(unique_id, "none.none"))
        return None if state is None else state.state

    async def until(self, what, wanted, limit_s=LIMIT_S):
        """Waits until `wanted` gives nothing that is amiss."""
        for _ in range(int(limit_s * 10)):
            if not (amiss := wanted()):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{what}: {json.dumps(amiss, indent=1, default=str)}")

    async def publish(self, function, *arguments):
        await self.hass.async_add_executor_job(function, *arguments)

    async def all_known(self, what, step):
        """All entities are there, no others, and none is unknown. What is not retained is said again until it was heard."""
        wanted = entities(step)

        def amiss():
            shown = {unique_id: self.shown(unique_id) for unique_id in wanted}
            # A button is unknown until it is pressed.
            buttons = {u for u, entity in wanted.items() if "payload_press" in entity}
            known = lambda u, s: s not in (None, "unavailable") and (s != "unknown" or u in buttons)
            unknown = {u: s for u, s in shown.items() if not known(u, s)}
            others = set(self.ids()) - set(wanted)
            return {"unknown": unknown, "too many": sorted(others)} if unknown or others else None

        await self.until(f"{what}: here", lambda: sorted(set(wanted) - set(self.ids())))
        for _ in range(10):
            await self.publish(self.spotter.stream)
            try:
                await self.until(what, amiss, LIMIT_S / 10)
                break
            except AssertionError as error:
                last = error
        else:
            raise last
        counts = {}
        for entity_id in self.ids().values():
            platform = entity_id.split(".")[0]
            counts[platform] = counts.get(platform, 0) + 1
        devices = device_registry.async_get(self.hass).devices.values()
        print(f"{what}: {len(wanted)} entities left unknown: {counts}; {len(devices)} devices", flush=True)

    async def values(self):
        said = {
            "front_door_person_present": "on", "front_door_person_count": "3", "front_door_person_zone_drive": "2",
            "front_door_door_open_yes": "on", "front_door_weather_answer": "sun",
            "front_door_scene_answer": LONG[:255].strip(), "front_door_enabled": "on",
            "front_door_rate": "2.5", "front_door_motion_gate": "off", "front_door_person_prompt": "some words",
            "front_door_person_dwell_drive": "on", "front_door_trigger_bell": "on", "front_door_person_line_kerb_to_road": "5",
            "front_door_person_line_kerb_to_house": "7", "front_door_person_min_score": "0.4", "front_door_state": "streaming", "front_door_problem": "off",
            "latency_p95": "88.0", "gpu_use": "71.0", "cameras_online": "2", "config_problem": "off", "too_late": "on",
            "mode": "night",
        }
        shown = lambda key: self.shown("spotter_edge1_" + key)
        await self.until("values", lambda: {k: (shown(k), v) for k, v in said.items() if shown(k) != v})
        event = self.hass.states.get(self.ids()["spotter_edge1_front_door_person_event"])
        assert event.attributes["event_type"] == "update" and event.attributes["description"] == "It waves." and event.attributes["zones"] == ["drive"], event
        assert event.attributes["dwell_s"] == {"drive": 31.5} and event.attributes["dwelling"] == ["drive"], event
        crossing = self.hass.states.get(self.ids()["spotter_edge1_front_door_person_crossing_kerb"])
        assert crossing.attributes["event_type"] == "to_house" and crossing.attributes["count"] == 7, crossing
        attributes = lambda key: self.hass.states.get(self.ids()["spotter_edge1_front_door_" + key]).attributes
        assert attributes("scene_answer")["text"] == attributes("view_answer")["text"] == LONG, attributes("scene_answer")
        thought = attributes("why_open_answer")
        assert (thought["text"], thought["reasoning"]) == (THOUGHT["answer"], THOUGHT["reasoning"]["text"]), thought
        print("values: as they were said", flush=True)

    async def unknown_and_away(self):
        """`None` is unknown; a camera that is away takes its entities along, but not the switch that brings it back."""
        of = "spotter_edge1_front_door_"
        gone = {"present/person": "person_present", "count/person": "person_count", "zone/drive/person": "person_zone_drive",
                "dwell/drive/person": "person_dwell_drive",
                "answer/door_open": "door_open_yes", "answer/weather": "weather_answer", "answer/scene": "scene_answer", "answer/view": "view_answer"}
        for topic in gone:
            await self.publish(self.spotter.publish, f"{BASE}cam/front_door/{topic}", "None")
        await self.until("None", lambda: {k: self.shown(of + k) for k in gone.values() if self.shown(of + k) != "unknown"})
        for reason, problem in [("switched_off: by a command", "off"), ("unreachable: no route", "on"), (None, "off")]:
            health = json.dumps({**HEALTH, "reason": reason})
            await self.publish(self.spotter.publish, BASE + "cam/front_door/health", health)
            await self.until("problem", lambda: {reason: self.shown(of + "problem")} if self.shown(of + "problem") != problem else {})
        await self.publish(self.spotter.publish, BASE + "cam/front_door/trigger/bell", "OFF")
        await self.publish(self.spotter.publish, BASE + "cam/front_door/status", "offline")
        there = {"enabled": "on", "state": "streaming", "trigger_bell": "off", "person_present": "unavailable", "rate": "unavailable"}
        await self.until("camera away", lambda: {k: self.shown(of + k) for k, v in there.items() if self.shown(of + k) != v})
        await self.publish(self.spotter.publish, BASE + "status", "offline")
        await self.until("node away", lambda: {k: self.shown(of + k) for k in there if self.shown(of + k) != "unavailable"})
        print("None is unknown, offline is unavailable, the switch of a camera stays", flush=True)

    async def commands(self):
        """Every setting sends its command to its topic, and no broker keeps it."""
        ids = self.ids()
        settable = [(u, e) for u, e in entities(self.step).items() if "command_topic" in e]
        for unique_id, _ in settable:
            domain = ids[unique_id].split(".")[0]
            service, data = {"switch": ("turn_off", {}), "number": ("set_value", {"value": 0.5}),
                             "text": ("set_value", {"value": "a red car"}), "button": ("press", {}),
                             "select": ("select_option", {"option": "away"})}[domain]
            data = {"entity_id": ids[unique_id], **data}
            await self.hass.services.async_call(domain, service, data, blocking=True)
        payload = {"switch": "OFF", "number": "0.5", "text": "a red car", "button": "RESET", "select": "away"}
        sent = [(e["command_topic"], payload[ids[u].split(".")[0]], False) for u, e in settable]
        await self.until("commands", lambda: sorted(set(sent) - set(self.spotter.heard)))
        print(f"commands: {len(sent)} settings send theirs, none is retained", flush=True)


async def run(steps, host, port):
    device, less = steps
    with tempfile.TemporaryDirectory() as directory:
        spotter = Spotter(host, port)
        spotter.step(device)
        hass = await home_assistant(directory, host, port)
        check = Check(hass, spotter)
        try:
            check.step = device
            await check.all_known("one record a device", device)
            await check.values()
            await check.commands()
            await check.unknown_and_away()
            await check.publish(spotter.step, less)
            await check.all_known("with less", less)
        finally:
            await hass.async_stop(force=True)


class Complaints(logging.Handler):
    """What Home Assistant had to say against us."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        if any(name in record.name for name in ("mqtt", "template", "automation", "blueprint", "script", "mobile_app")):
            self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")

    def end(self):
        if self.lines:
            sys.exit("Home Assistant complains:\n" + "\n".join(self.lines))


def main():
    steps, host, port = sys.argv[1:]
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    steps = [json.loads(line) for line in pathlib.Path(steps).read_text().splitlines()]
    asyncio.run(run(steps, host, int(port)))
    complaints.end()


if __name__ == "__main__":
    main()
