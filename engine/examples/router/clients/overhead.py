"""What a router adds to a worker's answer: overhead.py PROGRAM [--peer NAME=COMMAND]...

PROGRAM is the built example `router`, in release mode. COMMAND starts another router in front of the same worker; in it
{worker} stands for the worker's URL and {port} for the port to listen on. Needs `wrk`.

One process is the worker: the example's built-in one, which answers at once. Each round measures the worker itself and
then every router, one after the other: first one connection, for latency, then 32, for throughput and processor time.
Printed are medians over the rounds.
"""

import argparse
import json
import os
import re
import shlex
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

BODY = json.dumps({"model": "m", "prompt": "Say it again, please. " * 100, "max_tokens": 1})
WORKER = "--mock-workers 1 --mock-prefill 1e12 --mock-decode 1e9 --mock-slots 1024 --mock-cache 0"
UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6}
TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    """A server in a process group of its own."""

    def __init__(self, command):
        self.log = tempfile.NamedTemporaryFile("w+", delete=False)
        self.process = subprocess.Popen(
            shlex.split(command), stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def output(self):
        with open(self.log.name) as file:
            return file.read()

    def cpu(self):
        """Seconds of processor time of the whole group."""
        ticks = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == self.process.pid:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / TICKS

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.unlink(self.log.name)


def answers(url, server, patience=120):
    """Waits until a completion comes back."""
    end = time.monotonic() + patience
    while True:
        request = urllib.request.Request(f"{url}/v1/completions", BODY.encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                json.load(answer)
                return
        except (OSError, ValueError) as error:
            ended = server.process.poll() is not None
            if ended or time.monotonic() > end:
                raise SystemExit(f"{url} does not answer: {error}\n{server.output()[-2000:]}") from None
            time.sleep(0.2)


def wrk(url, script, connections, seconds):
    """p50 and p99 [µs], and requests per second."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-s", script, f"{url}/v1/completions"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise SystemExit(f"{url}: errors under load:\n{text}")

    def percentile(n):
        value, unit = re.search(rf"^\s+{n}%\s+([\d.]+)(\w+)$", text, re.M).groups()
        return float(value) * UNITS[unit]

    return percentile(50), percentile(99), float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    args = parser.parse_args()
    servers = []
    try:
        worker = Process(f"{shlex.quote(args.program)} --listen 127.0.0.1:0 {WORKER}")
        servers.append(worker)
        while not (found := re.search(r"^worker 1 at (\S+) is up", worker.output(), re.M)):
            if worker.process.poll() is not None:
                raise SystemExit(worker.output())
            time.sleep(0.05)
        targets = {"the worker itself": (found[1], worker)}
        own = f"tollgate={shlex.quote(args.program)} --worker {{worker}} --listen 127.0.0.1:{{port}}"
        for peer in [own, *args.peer]:
            name, _, command = peer.partition("=")
            port = free_port()
            server = Process(command.format(worker=found[1], port=port))
            servers.append(server)
            targets[name] = (f"http://127.0.0.1:{port}", server)
        for url, server in targets.values():
            answers(url, server)
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
            quoted = BODY.replace("\\", "\\\\").replace("'", "\\'")
            script.write(f"wrk.method='POST' wrk.body='{quoted}' wrk.headers['content-type']='application/json'\n")
            script.flush()
            seen = {name: [] for name in targets}
            for _ in range(args.rounds):
                for name, (url, server) in targets.items():
                    p50, p99, _ = wrk(url, script.name, 1, args.seconds)
                    before = server.cpu()
                    _, _, rate = wrk(url, script.name, 32, args.seconds)
                    seen[name].append((p50, p99, rate, (server.cpu() - before) / (rate * args.seconds)))
    finally:
        for server in servers:
            server.stop()
    rows = {name: [statistics.median(column) for column in zip(*rounds)] for name, rounds in seen.items()}
    direct = rows["the worker itself"]
    print("| | p50, p99, one connection [µs] | added [µs] | requests/s, 32 connections | processor per request [µs] | requests/s per core |")
    print("|---|---|---|---|---|---|")
    for name, (p50, p99, rate, cpu) in rows.items():
        own = name == "the worker itself"
        added = "" if own else f"{p50 - direct[0]:.0f}, {p99 - direct[1]:.0f}"
        print(f"| {name} | {p50:.0f}, {p99:.0f} | {added} | {rate:,.0f} | {cpu * 1e6:.0f} | {1 / cpu:,.0f} |")


main()
