"""Asks the HTTP API with the package openai.

    python check.py URL TOKEN PICTURE
"""

import base64
import concurrent.futures
import sys

import openai


def question(picture, text="How many cars are there?"):
    image = {"type": "image_url", "image_url": {"url": picture}}
    return [{"role": "user", "content": [{"type": "text", "text": text}, image]}]


def refused(kind, client, messages):
    try:
        client.chat.completions.create(model="any", messages=messages)
    except kind as error:
        assert error.code is None or isinstance(error.code, str), error.code
        print(f"{kind.__name__}: {error}", flush=True)
        return
    sys.exit(f"not refused with {kind.__name__}: {messages!r:.200}")


def main():
    url, token, path = sys.argv[1:]
    with open(path, "rb") as file:
        picture = "data:image/jpeg;base64," + base64.b64encode(file.read()).decode()
    client = openai.OpenAI(base_url=url, api_key=token)
    models = [model.id for model in client.models.list()]
    assert len(models) == 1, models
    answer = client.chat.completions.create(model=models[0], messages=question(picture), temperature=0, max_tokens=20)
    words = answer.choices[0].message.content
    assert words and answer.choices[0].finish_reason == "stop" and answer.model == models[0], answer
    usage = answer.usage
    assert usage.prompt_tokens > 400 and usage.completion_tokens > 1, usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage
    print(f"openai {openai.__version__}, model {models[0]}: {words!r}", flush=True)
    chunks = client.chat.completions.create(model=models[0], messages=question(picture), stream=True)
    chunks = list(chunks)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert streamed == words and chunks[-1].usage == usage, (chunks, words)
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(model="any", messages=question(picture), stream=True, stream_options=options))
    assert chunks[-1].usage == usage and not chunks[-1].choices, chunks
    hello = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}])
    assert "image_url" in hello.choices[0].message.content and hello.usage.total_tokens == 0, hello

    # The package asks again after 429, after the time that the answer names.
    patient = client.with_options(max_retries=20)
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        ask = lambda _: patient.chat.completions.create(model="any", messages=question(picture)).choices[0].message.content
        answers = list(pool.map(ask, range(10)))
    assert answers == [words] * 10, answers
    print("10 clients at the same time: 10 equal answers", flush=True)

    refused(openai.AuthenticationError, openai.OpenAI(base_url=url, api_key="wrong"), question(picture))
    refused(openai.BadRequestError, client, question("https://example.net/a.jpg"))
    refused(openai.BadRequestError, client, question(picture, "is it a car? " * 150))
    two = question(picture)
    two[0]["content"].append(two[0]["content"][1])
    refused(openai.BadRequestError, client, two)


main()
