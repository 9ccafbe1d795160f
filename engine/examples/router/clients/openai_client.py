"""OpenAI's own client against a running router: openai_client.py BASE_URL

The router has built-in workers with the model `m`. Prints a line for each check; exits with 1 if one fails.
"""

import asyncio
import sys
import time
import urllib.request
import json

import openai

BASE = sys.argv[1].rstrip("/")
CLASSES = [{"x-dynamo-meta-policy-class": name} for name in ("premium", "regular")]
PROMPT = "Say it again, please. " * 20


def client(**options):
    return openai.OpenAI(base_url=f"{BASE}/v1", api_key="none", **{"max_retries": 0, "timeout": 60, **options})


def completions():
    answer = client().completions.create(model="m", prompt=PROMPT, max_tokens=5, extra_headers=CLASSES[0])
    assert answer.choices[0].text == " token" * 5, answer
    assert answer.usage.prompt_tokens == 110 and answer.usage.completion_tokens == 5, answer
    ids = client().completions.create(model="m", prompt=[1, 2, 3], max_tokens=1)
    assert ids.usage.prompt_tokens == 3, ids


def chat():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    hints = {"nvext": {"agent_hints": {"priority": 5, "strict_priority": 1, "osl": 64}}}
    answer = client().chat.completions.create(model="m", messages=messages, max_tokens=4, extra_body=hints)
    assert answer.choices[0].message.content == " token" * 4, answer


def embeddings_and_models():
    answer = client().embeddings.create(model="m", input=["one", "two"])
    assert [item.index for item in answer.data] == [0, 1], answer
    assert [model.id for model in client().models.list()] == ["m"]
    assert client().models.retrieve("m").id == "m"


def raw_headers():
    raw = client().completions.with_raw_response.create(model="m", prompt="x", max_tokens=1, extra_headers=CLASSES[0])
    assert raw.headers["x-tollgate-class"] == "premium_any", raw.headers
    assert raw.headers["x-tollgate-worker"].isdigit(), raw.headers


def streaming():
    for make in (
        lambda: client().completions.create(model="m", prompt=PROMPT, max_tokens=8, stream=True),
        lambda: client().chat.completions.create(
            model="m", messages=[{"role": "user", "content": PROMPT}], max_tokens=8, stream=True
        ),
    ):
        events = list(make())
        assert len(events) == 9, events
        assert events[-1].choices[0].finish_reason == "length", events[-1]


def at_rest():
    """Waits until every gauge is 0."""
    for _ in range(1000):
        with urllib.request.urlopen(f"{BASE}/debug/scheduler") as answer:
            state = json.load(answer)
        model = state["models"]["m"]
        gauges = [state["in_flight"]]
        gauges += [c["waiting"]["requests"] for c in model["classes"]]
        gauges += [e[name] for e in model["endpoints"] for name in ("permits", "booked_tokens", "active_tokens")]
        if not any(gauges):
            return
        time.sleep(0.02)
    raise AssertionError(f"not at rest: {state}")


def cancel_in_mid_stream():
    stream = client().completions.create(model="m", prompt=PROMPT, max_tokens=60_000, stream=True)
    seen = [next(stream) for _ in range(3)]
    assert len(seen) == 3
    stream.close()
    at_rest()


def errors():
    def status(kind, **request):
        try:
            client().completions.create(**{"model": "m", "prompt": "x", "max_tokens": 1, **request})
        except kind as error:
            return error
        raise AssertionError(f"no {kind} for {request}")

    unknown = status(openai.NotFoundError, model="nobody's")
    assert unknown.code == "model_not_found" and unknown.param == "model", unknown.body
    invalid = status(openai.BadRequestError, extra_body={"nvext": {"agent_hints": {"strict_priority": -1}}})
    assert invalid.param == "nvext.agent_hints.strict_priority", invalid.body
    assert status(openai.BadRequestError, prompt="").param == "prompt"
    late = status(openai.APIStatusError, prompt=list(range(4000)), extra_headers={"x-tollgate-max-wait-ms": "0"})
    assert late.status_code == 504 and late.code == "deadline_exceeded", late.body


def many_clients():
    async def one(i):
        async with openai.AsyncOpenAI(base_url=f"{BASE}/v1", api_key="none", max_retries=0, timeout=120) as own:
            request = {"model": "m", "prompt": f"{i} {PROMPT}", "max_tokens": 4, "extra_headers": CLASSES[i % 2]}
            if i % 3 == 0:
                stream = await own.completions.create(stream=True, **request)
                return sum([1 async for _ in stream]) == 5
            answer = await own.completions.create(**request)
            return answer.choices[0].text == " token" * 4

    async def all_of_them():
        return await asyncio.gather(*(one(i) for i in range(64)))

    assert all(asyncio.run(all_of_them()))


CHECKS = [completions, chat, embeddings_and_models, raw_headers, streaming, cancel_in_mid_stream, errors, many_clients]

failed = 0
for check in CHECKS + [at_rest]:
    try:
        check()
        print(f"openai {openai.__version__}: {check.__name__} ... ok")
    except Exception as error:  # Whatever it is, the others are of interest too.
        failed += 1
        print(f"openai {openai.__version__}: {check.__name__} ... FAILED: {type(error).__name__}: {error}")
print(f"{len(CHECKS) + 1 - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
