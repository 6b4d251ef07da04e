"""Speaks to a kubelet's port with TLS.

get PORT PATH: prints the answer.
exec PORT PATH WORD...: runs a command in a container over a websocket, and prints what came on stdout, what came on stderr, and the status.
"""

import base64
import json
import os
import socket
import ssl
import struct
import sys
import urllib.parse

verb, port, path, *words = sys.argv[1:]
connection = socket.create_connection(("127.0.0.1", int(port)), timeout=30)
tls = ssl._create_unverified_context().wrap_socket(connection)
answer = tls.makefile("rb")


def ask(head):
    tls.sendall("\r\n".join([*head, "Host: localhost", "", ""]).encode())
    status = answer.readline().decode()
    while answer.readline().strip():
        pass
    return status


def messages():
    while True:
        start = answer.read(2)
        if len(start) < 2 or start[0] & 15 == 8:
            return
        length = start[1] & 127
        if length == 126:
            (length,) = struct.unpack(">H", answer.read(2))
        yield answer.read(length)


if verb == "get":
    # In the older version the end of the connection is the end of the answer.
    status = ask([f"GET {path} HTTP/1.0"])
    assert " 200 " in status, status
    sys.stdout.write(answer.read().decode())
else:
    query = urllib.parse.urlencode([("output", 1), ("error", 1), *(("command", word) for word in words)])
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
    status = ask([f"GET {path}?{query} HTTP/1.1", *upgrade, "Sec-WebSocket-Protocol: v4.channel.k8s.io"])
    assert " 101 " in status, status
    channels = {1: "", 2: "", 3: ""}
    for message in messages():
        if message:
            channels[message[0]] += message[1:].decode()
    print(json.dumps([channels[1], channels[2], json.loads(channels[3])["status"]]))
