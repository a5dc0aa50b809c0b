"""The recipes of docs/recipes.md for Home Assistant, taken from that page: the daemon's events, and a phone that has Home Assistant's app."""

import asyncio
import collections
import json
import pathlib
import re

from aiohttp import web
from homeassistant.helpers import device_registry
from homeassistant.helpers.aiohttp_client import async_get_clientsession
from homeassistant.setup import async_setup_component
from homeassistant.util.yaml import parse_yaml

import check

DEVICE = "phone-of-the-test"
# The event entities of the blueprint's automations, whose entity ids begin with the same characters.
JUDGED = {"judge": ["street_person_event", "yard_person_event"], "judge cars": ["street_car_event"]}
EVENT_TOPIC = check.BASE + "cam/street/event/person"
RECORD = "homeassistant/device/spotter_edge1_street/config"


def recipe(page, heading):
    """The YAML block below a heading."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1]


class Phone:
    """It registers over HTTP as the app does, hears notifications at its push URL, and fires the event of a pressed button."""

    def __init__(self, hass):
        self.hass = hass
        self.http = async_get_clientsession(hass)
        self.notifications = []

    async def register(self):
        """Returns the id of its device."""
        pushes = web.Application()
        pushes.router.add_post("/push", self.on_push)
        runner = web.AppRunner(pushes)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        push = {"push_token": "a token", "push_url": f"http://127.0.0.1:{runner.addresses[0][1]}/push"}
        user = await self.hass.auth.async_create_user("someone", group_ids=["system-users"])
        refresh = await self.hass.auth.async_create_refresh_token(user, client_id="https://app.example/")
        registration = {"device_id": DEVICE, "app_id": "app", "app_name": "App", "app_version": "1", "device_name": "Phone", "manufacturer": "M",
                        "model": "P", "os_name": "OS", "os_version": "1", "supports_encryption": False, "app_data": push}
        login = {"Authorization": f"Bearer {self.hass.auth.async_create_access_token(refresh)}"}
        registered = await self.post("mobile_app/registrations", registration, login)
        self.webhook = (await registered.json())["webhook_id"]
        await self.hass.async_block_till_done()
        return device_registry.async_get(self.hass).async_get_device({("mobile_app", DEVICE)}).id

    async def on_push(self, request):
        self.notifications.append(await request.json())
        return web.json_response({}, status=201)

    async def press(self, notification, title):
        [action] = [action["action"] for action in notification["data"]["actions"] if action["title"] == title]
        event = {"action": action, "tag": notification["data"]["tag"]}
        await self.post(f"webhook/{self.webhook}", {"type": "fire_event", "data": {"event_type": "mobile_app_notification_action", "event_data": event}})

    async def post(self, path, body, headers=None):
        answer = await self.http.post(f"http://127.0.0.1:{self.hass.http.server_port}/api/{path}", json=body, headers=headers)
        answer.raise_for_status()
        return answer

    def questions(self):
        """What the blueprint sent, by the name of the event entity."""
        found = collections.defaultdict(list)
        for notification in self.notifications:
            if notification["message"] == "Is it right?":
                found[notification["title"]].append(notification)
        return found

    def alarms(self):
        """What the other recipe sent."""
        return [n["message"] for n in self.notifications if n["message"].startswith("Person at the gate")]


class Recipes:
    """`daemon` is the daemon.Daemon of the test; `page` is the daemon's page."""

    def __init__(self, daemon, page):
        self.daemon = daemon
        self.hass = daemon.hass
        self.page = page
        self.phone = Phone(daemon.hass)

    async def set_up(self, recipes):
        """Automations as a person makes them of the page: two with the blueprint, and the one that asks nothing."""
        blueprint = pathlib.Path(self.hass.config.path("blueprints/automation/spotter/judge.yaml"))
        blueprint.parent.mkdir(parents=True)
        blueprint.write_text(recipe(recipes, 'A notification with a button "Wrong"'))
        assert await async_setup_component(self.hass, "mobile_app", {}), "mobile_app"
        entities = {alias: [self.daemon.ids()["spotter_edge1_" + key] for key in keys] for alias, keys in JUDGED.items()}
        device = await self.phone.register()
        judges = [{"alias": alias, "use_blueprint": {"path": "spotter/judge.yaml", "input": {"events": events, "phone": device}}}
                  for alias, events in entities.items()]
        plain = recipe(recipes, "Home Assistant").replace("event.gate_person_event", entities["judge"][0])
        automations = [*judges, {"alias": "plain", **parse_yaml(plain)}]
        assert await async_setup_component(self.hass, "automation", {"automation": automations}), "automation"
        states = {state.entity_id: state.state for state in self.hass.states.async_all("automation")}
        assert list(states.values()) == ["on"] * len(automations), states
        self.names = [self.hass.states.get(event).name for events in entities.values() for event in events]

    async def marks(self):
        """Events of two cameras and two automations wait for their buttons at the same time, and each gets the mark of its own, by one command."""
        phone, (street, yard, car) = self.phone, self.names
        needed = {street: 2, yard: 2, car: 1}

        def missing():
            sent = {name: len(phone.questions()[name]) for name in needed}
            return sent if any(sent[name] < count for name, count in needed.items()) else {}

        await self.daemon.until("notifications of the blueprint", missing, self.daemon.LIMIT_S)
        asked = phone.questions()
        pressed = [(asked[street][1], "Wrong"), (asked[yard][0], "Right"), (asked[street][0], "Right"), (asked[yard][1], "Wrong"),
                   (asked[car][0], "Wrong")]
        for notification, title in pressed:
            assert notification["data"]["url"].startswith(self.page), notification
            while not await self.stored(notification["data"]["tag"]):
                await asyncio.sleep(0.1)
            await phone.press(notification, title)
        wanted = {notification["data"]["tag"]: title.lower() for notification, title in pressed}
        assert len(wanted) == len(pressed), pressed
        for _ in range(check.LIMIT_S):
            notified = [question["data"]["tag"] for questions in phone.questions().values() for question in questions]
            marks = {event: mark for event in notified if (mark := (await self.stored(event)).get("mark"))}
            if marks == wanted:
                break
            await asyncio.sleep(1)
        assert marks == wanted, (marks, wanted)
        commands = [(command["event"], command["mark"]) for command in self.daemon.told.commands]
        assert sorted(commands) == sorted(wanted.items()), (commands, wanted)
        print(f"recipes: {len(pressed)} alarms of two cameras and two automations are marked as their buttons say, each by one command", flush=True)

    async def stored(self, event):
        """What the daemon has stored of it; `{}` for a moment after it began."""
        answer = await self.phone.http.get(f"{self.page}events/{event}.json")
        return await answer.json() if answer.status == 200 else {}

    async def one_notification_an_event(self):
        """While the camera waits for its trigger, so that no other event comes: what ends, is late, returns, is renamed or is removed is no alarm."""
        phone, street = self.phone, self.names[0]
        tags = [question["data"]["tag"] for question in phone.questions()[street]]
        assert len(set(tags)) == len(tags), tags

        async def say(name, **keys):
            message = {**check.EVENT, "type": "new", "event": name, **keys}
            await self.daemon.publish(self.daemon.told.say, EVENT_TOPIC, json.dumps(message), False)

        await say("late", delayed=True)
        await say("changed", type="update")
        await say("last")
        entity = self.daemon.ids()["spotter_edge1_street_person_event"]
        await self.becomes(entity, "event", "last")
        for name in ("Someone", None):
            self.daemon.registry.async_update_entity(entity, name=name)
            await self.becomes(entity, "friendly_name", name or street)
        await self.remove_and_add(entity)
        await self.becomes(entity, "event", "last")
        await self.daemon.call("switch", "turn_off", "enabled")
        await self.daemon.shows("a camera with an alarm is off", {"person_event": "unavailable"})
        await self.daemon.call("switch", "turn_on", "enabled")
        await self.daemon.shows("and on again", {"state": "streaming"})
        await say("next")
        await say("and one more")
        wanted = [*tags, "last", "next", "and one more"]
        sent = lambda: [question["data"]["tag"] for question in phone.questions()[street]]
        await self.daemon.until("notifications", lambda: {} if (sent(), len(phone.alarms())) == (wanted, len(wanted)) else sent() + phone.alarms())
        print(f"recipes: {len(wanted)} events of a camera, one notification each", flush=True)

    async def becomes(self, entity, attribute, wanted):
        def amiss():
            state = self.hass.states.get(entity)
            return {} if state and state.attributes.get(attribute) == wanted else {attribute: state}

        await self.daemon.until(f"{attribute} {wanted}", amiss)

    async def remove_and_add(self, entity):
        """As when the prompt is removed and added."""
        told = self.daemon.told
        record = told.records[RECORD]
        without = {**record, "components": {**record["components"], "person_event": {"platform": "event"}}}
        await self.daemon.publish(told.say, RECORD, json.dumps(without))
        await self.daemon.until("an entity is removed", lambda: self.hass.states.get(entity))
        await self.daemon.publish(told.say, RECORD, json.dumps(record))
