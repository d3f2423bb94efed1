"""Stand-ins for the two that weir-dra talks to: kubelet (grpcio, messages by hand) and the API server (http.server)."""
import concurrent.futures
import copy
import http.server
import json
import os
import queue
import re
import shutil
import sys
import threading
import time
import unittest
import urllib.parse
import uuid

import lib

sys.path.append("/usr/lib/python3/dist-packages")  # Debian's python3-grpcio, where another python3 runs the tests
try:
    import grpc
except ImportError:
    grpc = None

DRIVER = "gpu.weir.dev"
NODE = "node1"
GIB = 1 << 30
MIB = 1 << 20


# ---------------------------------------------------------------- protobuf by hand

def varint(value):
    out = bytearray()
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(*fields):
    """Bytes of (number, value) pairs: text and bytes, or whole numbers."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def fields(data):
    """{number: [values]} of a message."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 2:
            size = number()
            found.setdefault(key >> 3, []).append(data[at:at + size])
            at += size
        else:
            found.setdefault(key >> 3, []).append(number())
    return found


def text(found, number):
    return found.get(number, [b""])[0].decode()


# ---------------------------------------------------------------- the API server

class ApiServer:
    """Keeps slices, claims and a node. What a cluster does not know it leaves out of slices: `forgets`."""

    def __init__(self, versions=("v1",), forgets=()):
        self.versions, self.forgets = versions, set(forgets)
        self.lock = threading.Condition()
        self.objects = {}  # path: object
        self.history = []  # (version, type, object)
        self.version = 0
        self.requests = []
        self.token = None  # that a request must have
        self.claims_fail = None  # HTTP status for requests about claims
        self.put(f"/api/v1/nodes/{NODE}", {"metadata": {"name": NODE, "uid": str(uuid.uuid4())}})
        self.server = None
        self.start()

    def start(self, port=0):
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def answer(self, code, body):
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def handle_one(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                url = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(url.query))
                with owner.lock:
                    owner.requests.append((self.command, self.path))
                    token = owner.token
                if token and self.headers.get("Authorization") != f"Bearer {token}":
                    return self.answer(401, {"message": "Unauthorized"})
                if query.get("watch"):
                    return self.watch(query)
                return self.answer(*owner.handle(self.command, url.path, query, body))

            do_GET = do_POST = do_PUT = do_DELETE = handle_one

            def watch(self, query):
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Connection", "close")
                self.end_headers()
                at, name = int(query["resourceVersion"]), query["fieldSelector"].split("=", 1)[1]
                try:
                    while not owner.closing:
                        for event in owner.events_after(at, name):
                            at = event[0]
                            line = json.dumps({"type": event[1], "object": event[2]}) + "\n"
                            self.wfile.write(line.encode())
                            self.wfile.flush()
                except OSError:
                    pass
                self.close_connection = True

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 128  # with the usual 5 the kernel drops connections, which come again a second later

        self.closing = False
        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.closing = True
        with self.lock:
            self.lock.notify_all()
        self.server.shutdown()
        self.server.server_close()

    def events_after(self, version, name):
        with self.lock:
            found = [e for e in self.history if e[0] > version and e[2]["metadata"]["name"] == name]
            if not found:
                self.lock.wait(0.2)
            return found

    def put(self, path, thing, kind="ADDED"):
        with self.lock:
            self.version += 1
            thing["metadata"]["resourceVersion"] = str(self.version)
            self.objects[path] = thing
            if "resourceslices" in path:
                self.history.append((self.version, kind, copy.deepcopy(thing)))
            self.lock.notify_all()

    def delete(self, path):
        with self.lock:
            self.version += 1
            thing = self.objects.pop(path)
            self.history.append((self.version, "DELETED", thing))
            self.lock.notify_all()

    def store(self, slice_):
        """As a cluster does that does not know some fields."""
        kept = copy.deepcopy(slice_)
        for device in kept["spec"]["devices"]:
            body = device.get("basic", device)
            if "capacity" in self.forgets:
                body.pop("allowMultipleAllocations", None)
                for amount in body.get("capacity", {}).values():
                    amount.pop("requestPolicy", None)
            if "taints" in self.forgets:
                body.pop("taints", None)
        return kept

    def handle(self, method, path, query, body):
        if path.rsplit("/", 1)[0] == "/apis/resource.k8s.io":
            return (200, {}) if path.rsplit("/", 1)[1] in self.versions else (404, {"message": "page not found"})
        if "/resourceclaims/" in path and self.claims_fail:
            return self.claims_fail, {"message": "made to fail"}
        found = re.fullmatch(r"/apis/resource.k8s.io/(\w+)/(.*)", path)
        if found and found[1] not in self.versions:
            return 404, {"message": "the server could not find the requested resource"}
        if method == "GET":
            thing = self.objects.get(path)
            return (200, thing) if thing else (404, {"message": "not found"})
        if method == "DELETE":
            self.delete(path)
            return 200, {}
        kept = self.store(body)
        if query.get("dryRun"):
            return 201, kept
        name = f"{path}/{body['metadata']['name']}" if method == "POST" else path
        there = self.objects.get(name)
        if method == "POST" and there:
            return 409, {"message": "already exists"}
        if method == "PUT" and (not there or there["metadata"]["resourceVersion"] != body["metadata"].get("resourceVersion")):
            return 409, {"message": "the object has been modified"}
        self.put(name, kept, "ADDED" if method == "POST" else "MODIFIED")
        return (201 if method == "POST" else 200), kept

    @property
    def slice_path(self):
        return f"/apis/resource.k8s.io/{self.versions[0]}/resourceslices/{NODE}-{DRIVER}"

    def slice(self):
        with self.lock:
            return copy.deepcopy(self.objects.get(self.slice_path))

    def devices(self):
        found = self.slice()
        return [d.get("basic", d) | {"name": d["name"]} for d in found["spec"]["devices"]] if found else []

    def delete_slice(self):
        self.delete(self.slice_path)

    def claim(self, memory="512Mi", compute=None, device="gpu0", parameters=None, of_class=None, results=None, name=None,
              driver=DRIVER, pod="pod-0"):
        """An allocated claim: as the scheduler leaves it."""
        name = name or f"claim-{uuid.uuid4().hex[:8]}"
        consumed = {"memory": memory, **({"compute": compute} if compute else {})}
        result = {"request": "gpu", "driver": driver, "pool": NODE, "device": device, "shareID": str(uuid.uuid4()),
                  **({"consumedCapacity": consumed} if memory else {})}
        config = [{"source": source, "requests": [], "opaque": {"driver": DRIVER, "parameters":
                   {"apiVersion": f"{DRIVER}/v1alpha1", "kind": "Share", **given}}}
                  for source, given in (("FromClaim", parameters), ("FromClass", of_class)) if given is not None]
        claim = {"metadata": {"name": name, "namespace": "ml", "uid": str(uuid.uuid4())},
                 "status": {"allocation": {"devices": {"results": results or [result], "config": config}},
                            "reservedFor": [{"resource": "pods", "name": pod}]}}
        self.put(f"/apis/resource.k8s.io/{self.versions[0]}/namespaces/ml/resourceclaims/{name}", claim)
        return claim


# ---------------------------------------------------------------- kubelet

class Kubelet:
    """Registers the driver that it finds in its folder, and calls it."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(os.path.join(folder, "plugins"), exist_ok=True)
        os.makedirs(os.path.join(folder, "plugins_registry"), exist_ok=True)
        self.version = "v1"
        self.channels = {}

    def channel(self, path):
        if path not in self.channels:
            self.channels[path] = grpc.insecure_channel(f"unix:{path}", options=[("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)])
        return self.channels[path]

    def forget(self):
        """Its connections end, as when it is restarted."""
        for channel in self.channels.values():
            channel.close()
        self.channels = {}

    def call(self, path, method, data=b"", limit_s=45):
        # A driver that has just been started may not accept yet.
        answer = self.channel(path).unary_unary(method)(data, timeout=limit_s, wait_for_ready=True)
        assert answer is not None, f"{method}: kubelet wants a message, if an empty one"
        return answer

    @property
    def registry(self):
        return os.path.join(self.folder, "plugins_registry", f"{DRIVER}-reg.sock")

    def register(self, good=True):
        lib.until(lambda: os.path.exists(self.registry), 10, "the driver's registration socket")
        info = fields(self.call(self.registry, "/pluginregistration.Registration/GetInfo"))
        self.info = (text(info, 1), text(info, 2), [v.decode() for v in info[4]])
        self.endpoint = text(info, 3)
        said = message((1, 1)) if good else message((2, "no"))
        self.call(self.registry, "/pluginregistration.Registration/NotifyRegistrationStatus", said)
        return self.info

    def about(self, method, claims, limit_s):
        request = message(*((1, message((1, c["metadata"]["namespace"]), (2, c["metadata"]["uid"]), (3, c["metadata"]["name"])))
                            for c in claims))
        answer = fields(self.call(self.endpoint, f"/k8s.io.kubelet.pkg.apis.dra.{self.version}.DRAPlugin/{method}", request, limit_s))
        return {text(entry, 1): fields(entry.get(2, [b""])[0]) for entry in map(fields, answer.get(1, []))}

    def prepare(self, *claims, limit_s=45):
        """{uid: (devices, error)}, a device as (requests, pool, device, cdi names, share)."""
        def device(data):
            d = fields(data)
            return ([r.decode() for r in d.get(1, [])], text(d, 2), text(d, 3), [c.decode() for c in d.get(4, [])], text(d, 5))

        return {uid: ([device(d) for d in found.get(1, [])], text(found, 2))
                for uid, found in self.about("NodePrepareResources", claims, limit_s).items()}

    def unprepare(self, *claims, limit_s=45):
        return {uid: text(found, 1) for uid, found in self.about("NodeUnprepareResources", claims, limit_s).items()}

    def watch_health(self):
        """A queue of {device: (health, text)}, as the driver tells."""
        told = queue.Queue()

        def read():
            try:
                for data in self.channel(self.endpoint).unary_stream("/v1alpha1.DRAResourceHealth/NodeWatchResources")(b""):
                    told.put({text(fields(h[1][0]), 2): (h.get(2, [0])[0], text(h, 5))
                              for h in map(fields, fields(data).get(1, []))})
            except grpc.RpcError:
                pass

        threading.Thread(target=read, daemon=True).start()
        return told


    # The device plugin comes to kubelet.

    def take_plugins(self, taken=True):
        """Begin as kubelet does: with an empty folder, and a socket of its own in it. Registrations are in `plugins`."""
        folder = os.path.join(self.folder, "device-plugins")
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        self.plugins = queue.Queue()
        kubelet = self

        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                if details.method != "/v1beta1.Registration/Register":
                    return None

                def register(request, context):
                    found = fields(request)
                    path = os.path.join(folder, text(found, 2))
                    kubelet.forget()
                    kubelet.call(path, "/v1beta1.DevicePlugin/GetDevicePluginOptions", limit_s=5)  # before it answers
                    if not taken:
                        context.abort(grpc.StatusCode.UNKNOWN, "not wanted")
                    kubelet.plugins.put((text(found, 1), path, text(found, 3)))
                    return b""
                return grpc.unary_unary_rpc_method_handler(register)

        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=(Handler(),))
        self.server.add_insecure_port(f"unix:{folder}/kubelet.sock")
        self.server.start()

    def watch_slots(self, path):
        """A queue of {slot: health}."""
        told = queue.Queue()

        def read():
            try:
                for data in self.channel(path).unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"", wait_for_ready=True):
                    told.put({text(d, 1): text(d, 2) for d in map(fields, fields(data).get(1, []))})
            except grpc.RpcError:
                pass

        threading.Thread(target=read, daemon=True).start()
        return told

    def allocate(self, path, *containers):
        """The CDI devices of each container."""
        request = message(*((1, message(*((1, slot) for slot in slots))) for slots in containers))
        answer = fields(self.call(path, "/v1beta1.DevicePlugin/Allocate", request, 10))
        return [[text(fields(d), 1) for d in fields(c).get(5, [])] for c in answer.get(1, [])]


# ---------------------------------------------------------------- a node

class Case(lib.Case):
    """Cases with a host on softgpu that begins without tenants, a driver, and the stand-ins."""

    def setUp(self):
        super().setUp()
        if not grpc:
            raise unittest.SkipTest("no python3-grpcio")
        self.driver_path = os.path.join(lib.places.build or "", "kubernetes", "weir-dra")
        if not os.access(self.driver_path, os.X_OK):
            raise unittest.SkipTest("weir-dra is not built")

    def node(self, gpus=1, memory=4 * GIB, register=True, plugin=(), env=None, **api):
        self.api = ApiServer(**api)
        self.addCleanup(lambda: self.api.stop())
        self.kubelet = Kubelet(self.folder())
        self.addCleanup(self.kubelet.forget)
        self.state = os.path.join(self.folder(), "claims")
        self.cdi = os.path.join(self.folder(), "weir.json")
        self.weir = self.host({}, args=("--cdi", self.cdi), start=False,
                              env={"WEIR_SOFTGPU_DEVICES": str(gpus), "WEIR_SOFTGPU_MEMORY": str(memory), **(env or {})})
        with open(self.weir.config) as f:
            lines = f.read()
        with open(self.weir.config, "w") as f:
            f.write("tenant = []\n" + lines)
        self.weir.start()
        self.driver = None
        self.start_driver(*plugin)
        if register and not plugin:
            self.kubelet.register()
            lib.until(self.api.devices, 10, "the slice is there")
        return self.weir

    def start_driver(self, *args):
        argv = [self.driver_path, "--node", NODE, "--run-dir", self.weir.run_dir, "--state-dir", self.state,
                "--kubelet-dir", self.kubelet.folder, "--server", self.api.url, *args]
        self.driver = lib.Process(argv, env=lib.clean_environment(), name="weir-dra")
        self.addCleanup(self.driver.kill)

    def prepared(self, claim, **kwargs):
        devices, error = self.kubelet.prepare(claim, **kwargs)[claim["metadata"]["uid"]]
        self.assertEqual(error, "", "\n".join(self.driver.errors[-10:]))
        return devices

    def refused(self, claim, expected):
        devices, error = self.kubelet.prepare(claim)[claim["metadata"]["uid"]]
        self.assertEqual(devices, [])
        self.assertRegex(error, expected)
        self.assertEqual(self.records(), [])
        self.assertEqual(self.tenants(), [])

    def ended(self, *claims):
        self.assertEqual(self.kubelet.unprepare(*claims), {c["metadata"]["uid"]: "" for c in claims})

    def tenant_of(self, claim):
        return "k8s-" + claim["metadata"]["uid"]

    def tenants(self):
        return sorted(t["name"] for t in self.weir.status()["tenant"])

    def records(self):
        return sorted(name[:-5] for name in os.listdir(self.state))

    def cdi_names(self):
        with open(self.cdi) as f:
            return [device["name"] for device in json.load(f)["devices"]]

    def log(self):
        return "\n".join(self.driver.errors)
