"""An independent reader of .frec traces, written from docs/format.md alone.

It shares no code with librec and takes other decisions where the format leaves them open
(it reads whole files into memory), so that the two can be compared. Needs the `zstandard`
module. Not a product: errors are exceptions, damage is skipped as the format page says.

    for op in FrecReader("host-1.frec").ops(): ...
"""

import json
import struct
import sys
import zlib

import zstandard

FILE_MAGIC = b"FREC\r\n\x1a\n"
SEGMENT, PIECE, INDEX = b"FRSG", b"FRPC", b"FRIX"
PIECE_HEADER, SEGMENT_HEADER = 24, 48
MAJOR = 1
RAW_MAX, DATA_MAX = 1 << 20, (1 << 20) + (1 << 16)
MASK = (1 << 64) - 1
NONE = 0xFFFFFFFF

META, COMM, THREAD, REDOP, STREAM, TEMPLATE, OPS, OPEN = range(1, 9)
FRONTIER, CHECKPOINT, HEARTBEAT, LOSS, STALL, END = range(9, 15)
TEXT, CALLSITE, GPU = 15, 16, 17
PYTHON, NATIVE, NATIVE_BUILDS = 1, 2, 3
ONE_SIDED = (24, 25, 26)  # kinds of ops


class NotATrace(Exception):
    pass


class NewerVersion(Exception):
    pass


class Damage(Exception):
    pass


class Body:
    """The bytes of a record, read front to back."""

    def __init__(self, data):
        self.data, self.pos = data, 0

    def take(self, size):
        if self.pos + size > len(self.data):
            raise Damage("record ends early")
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def byte(self):
        return self.take(1)[0]

    def word(self):
        return struct.unpack("<Q", self.take(8))[0]

    def varint(self):
        value = shift = 0
        while True:
            if shift >= 70:
                raise Damage("varint too long")
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & MASK
            shift += 7

    def signed(self):
        value = self.varint()
        return -(value >> 1) - 1 if value & 1 else value >> 1

    def id(self):
        return (self.varint() - 1) & NONE

    def string(self):
        return self.take(self.varint()).decode("utf-8", "replace")

    def list(self, element):
        count = self.varint()
        if count > 16384:
            raise Damage("list too long")
        return [element() for _ in range(count)]


def arithmetic_quarter(residual):
    """residual >> 2 of a 64-bit number, given modulo 2^64."""
    residual &= MASK
    if residual >> 63:
        residual -= 1 << 64
    return residual >> 2


class Segment:
    """What a segment knows while it is decoded."""

    def __init__(self, tick_ns):
        self.tick_ns = tick_ns
        self.clock = 0
        self.templates = []
        self.texts = []
        self.text_bytes = 0
        self.sequences = [0] * 8192
        self.launches = [(0, 0)] * 1024  # last number, its group
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 20).decompressobj()

    def ns(self, ticks):
        return (ticks & MASK) * self.tick_ns & MASK

    def time(self, body):
        self.clock = (self.clock + body.signed()) & MASK
        return self.ns(self.clock)

    # -- ops

    def template(self, body):
        flags = body.byte()
        self.templates.append(
            {
                "step": flags & 1,
                "varies": flags & 2,
                "sequence": body.varint(),
                "gap": 0,
                "duration": 0,
                "op": {
                    "kind": body.byte(),
                    "dtype": body.byte(),
                    "redop": body.byte(),
                    "state": body.byte(),
                    "flags": body.varint(),
                    "comm": body.id(),
                    "stream": body.id(),
                    "callsite": body.varint(),
                    "peer": body.signed(),
                    "count": body.varint(),
                },
            }
        )
        op = self.templates[-1]["op"]
        op["signal"] = 0 if op["kind"] not in ONE_SIDED else self.signal(body) if body.pos < len(body.data) else MASK

    @staticmethod
    def signal(body):
        return (body.varint() - 2) & MASK

    def batch(self, body):
        thread, ordinal, n, present = body.varint(), body.varint(), body.varint(), body.varint()
        first_delta = body.signed()
        if not 1 <= n <= 1024:
            raise Damage("impossible batch")
        try:
            templates = [self.templates[body.varint()] for _ in range(n)]
        except IndexError:
            raise Damage("unknown template") from None
        ops = [dict(t["op"], thread=thread, ordinal=ordinal + i, group=0, result=0) for i, t in enumerate(templates)]
        self.times(body, templates, ops, first_delta)
        if present & 1:
            self.groups(body, ops)
        for op in ops:
            op["seq"] = 0
        if present & 2:
            self.exceptions(body, ops, "seq", body.signed)
        for t, op in zip(templates, ops):
            op["seq"] = (self.sequences[t["sequence"]] + op["seq"]) & MASK
            self.sequences[t["sequence"]] = op["seq"] + (1 if t["step"] else 0)
        if present & 4:
            self.exceptions(body, ops, "result", body.byte)
        if present & 8:
            for t, op in zip(templates, ops):
                if t["varies"]:
                    op["count"] = body.varint()
        for op in ops:
            op["launch"] = start = end = 0
            if present & 16:
                start = op["enter"] + body.signed()
                end = start + body.signed()
            op["gpu_start_ns"], op["gpu_end_ns"] = self.ns(start), self.ns(end)
            op["enter_ns"], op["exit_ns"] = self.ns(op.pop("enter")), self.ns(op.pop("exit"))
        if present & 32:
            self.exceptions(body, ops, "launch", body.signed)
            for op in ops:
                self.launch(op)
        return ops

    def launch(self, op):
        if op["stream"] == NONE:
            op["launch"] = 0
            return
        last, group = self.launches[op["stream"] % 1024]
        expected = last if op["group"] and op["group"] == group else last + 1
        op["launch"] = (expected + op["launch"]) & MASK
        if op["launch"]:
            self.launches[op["stream"] % 1024] = op["launch"], op["group"]

    def times(self, body, templates, ops, first_delta):
        gaps = [first_delta]
        for t in templates[1:]:
            residual = body.signed()
            gaps.append(t["gap"] + residual)
            t["gap"] = (t["gap"] + arithmetic_quarter(residual)) & MASK
        for t, op, gap in zip(templates, ops, gaps):
            residual = body.signed()
            op["enter"] = (self.clock + gap) & MASK
            op["exit"] = (op["enter"] + t["duration"] + residual) & MASK
            t["duration"] = (t["duration"] + arithmetic_quarter(residual)) & MASK
            self.clock = op["exit"] or op["enter"] or self.clock

    @staticmethod
    def groups(body, ops):
        last = 0
        for op in ops:
            code = body.byte()
            if code == 0:
                continue
            if code == 2:
                last += 1
            elif code == 3:
                last = body.varint()
            elif code != 1:
                raise Damage("impossible group code")
            op["group"] = last

    @staticmethod
    def exceptions(body, ops, field, read):
        place = 0
        for _ in range(body.varint()):
            place += body.varint()
            if place >= len(ops):
                raise Damage("exception beyond the batch")
            ops[place][field] = read()
            place += 1

    # -- other records

    def open_op(self, body):
        thread, ordinal = body.varint(), body.varint()
        enter = (self.clock + body.signed()) & MASK
        exit_ = enter + body.signed()
        start = enter + body.signed()
        end = start + body.signed()
        return {
            "thread": thread,
            "ordinal": ordinal,
            "enter_ns": self.ns(enter),
            "exit_ns": self.ns(exit_),
            "gpu_start_ns": self.ns(start),
            "gpu_end_ns": self.ns(end),
            "count": body.varint(),
            "seq": body.varint(),
            "comm": body.id(),
            "stream": body.id(),
            "callsite": body.varint(),
            "launch": 0,
            "group": body.varint(),
            "peer": body.signed(),
            "kind": body.byte(),
            "dtype": body.byte(),
            "redop": body.byte(),
            "result": body.byte(),
            "state": body.byte(),
            "flags": body.varint(),
            "signal": 0,
        }

    @staticmethod
    def modules(body):
        return body.list(body.string)

    @staticmethod
    def frames(body, modules):
        frames = body.list(lambda: [body.id(), body.varint()])
        return [[module if module < len(modules) else NONE, address] for module, address in frames]

    def stall_thread(self, body, modules):
        return {
            "tid": body.signed(),
            "state": chr(body.byte()),
            "name": body.string(),
            "where": body.string(),
            "frames": self.frames(body, modules),
        }

    def text(self, raw):
        self.text_bytes += len(raw)
        if len(raw) > 4096 or len(self.texts) == 8192 or self.text_bytes > 1 << 20:
            raise Damage("too many texts")
        self.texts.append(raw.decode("utf-8", "replace"))

    def text_of(self, body):
        number = body.id()
        if number == NONE:
            return ""
        if number >= len(self.texts):
            raise Damage("unknown text")
        return self.texts[number]

    def callsite(self, body):
        fields = {"id": body.varint(), "kind": body.varint(), "frames": []}

        def frame():
            file, function, build, line, offset = self.text_of(body), "", "", 0, 0
            if fields["kind"] == NATIVE:
                offset = body.varint()
            elif fields["kind"] == NATIVE_BUILDS:
                build, offset = self.text_of(body), body.varint()
            else:
                function, line = self.text_of(body), body.varint()
            return {"line": line, "offset": offset, "file": file, "function": function, "build_id": build}

        if fields["kind"] in (PYTHON, NATIVE, NATIVE_BUILDS):
            fields["frames"] = body.list(frame)
        if fields["kind"] == NATIVE_BUILDS:
            fields["kind"] = NATIVE
        if len(fields["frames"]) > 64:
            raise Damage("too many frames")
        return "callsite", fields

    def record(self, kind, body):
        """A (name, fields) pair, or None for what gives no event."""
        if kind == COMM:
            names = ("id state nranks rank uid parent_uid parent_seq comm_hash handle created_ns device color "
                     "made_by async_error name").split()
            reads = [body.varint, body.varint, body.varint, body.id, body.word, body.word, body.varint, body.word,
                     body.varint, lambda: self.ns(body.varint()), body.signed, body.signed, body.varint, body.varint,
                     body.string]
            return "comm", {name: read() for name, read in zip(names, reads)}
        if kind == THREAD:
            return "thread", {"id": body.varint(), "tid": body.signed(), "name": body.string()}
        if kind == REDOP:
            return "redop", {"redop": body.varint(), "dtype": body.varint(), "residence": body.varint(),
                             "comm": body.id(), "scalar": body.word(), "hash": body.word()}
        if kind == STREAM:
            return "stream", {"id": body.varint(), "device": body.signed(), "handle": body.varint()}
        if kind == CALLSITE:
            return self.callsite(body)
        if not OPEN <= kind <= END and kind != GPU:
            return None
        fields = {"time_ns": self.time(body)}
        if kind == GPU:
            fields["stream"], fields["ended"] = body.varint(), body.varint()
            fields["started"] = fields["ended"] + body.varint()
            fields["dropped"] = body.varint()
            fields["error"] = body.varint() if body.pos < len(body.data) else 0
            return "gpu", fields
        if kind == OPEN:
            fields["ops"] = body.list(lambda: self.open_op(body))
            signals = body.list(lambda: self.signal(body)) if body.pos < len(body.data) else []
            for i, op in enumerate(fields["ops"]):
                if op["kind"] in ONE_SIDED:
                    op["signal"] = signals[i] if i < len(signals) else MASK
            return "open", fields
        if kind == FRONTIER:
            for name in ("comm", "next_seq", "p2p_entered", "lost"):
                fields[name] = body.varint()
            return "frontier", fields
        if kind == CHECKPOINT:
            fields["comm"], fields["peer"] = body.varint(), body.signed()
            flags = body.byte()
            fields["send"], fields["prefix_ok"] = flags & 1, flags >> 1 & 1
            fields["window"], fields["hash"], fields["prefix"] = body.varint(), body.word(), body.word()
            return "checkpoint", fields
        if kind == HEARTBEAT:
            return "heartbeat", fields
        if kind == LOSS:
            fields["thread"] = body.id()
            for name in ("first_ordinal", "count", "why"):
                fields[name] = body.varint()
            return "loss", fields
        if kind == STALL:
            fields["why"], fields["thread"], fields["since_ns"] = body.varint(), body.id(), self.ns(body.varint())
            fields["modules"] = self.modules(body)
            fields["threads"] = body.list(lambda: self.stall_thread(body, fields["modules"]))
            sites = body.list(body.varint) if body.pos < len(body.data) else []
            for i, thread in enumerate(fields["threads"]):
                thread["callsite"] = sites[i] if i < len(sites) else 0
            return "stall", fields
        fields["reason"] = body.varint()
        for name in ("status", "signal", "tid"):
            fields[name] = body.signed()
        fields["fault"] = body.varint()
        fields["modules"] = self.modules(body)
        fields["frames"] = self.frames(body, fields["modules"])
        return "end", fields


class FrecReader:
    def __init__(self, path_or_bytes):
        if isinstance(path_or_bytes, bytes):
            self.data = path_or_bytes
        else:
            with open(path_or_bytes, "rb") as file:
                self.data = file.read()
        self.damaged_bytes = 0
        self.torn_tail = self.closed = False
        self.file_id = None
        self.header()

    def header(self):
        data = self.data
        if data[:8] != FILE_MAGIC:
            raise NotATrace("no magic")
        if len(data) < 64 or zlib.crc32(data[:60]) != struct.unpack_from("<I", data, 60)[0]:
            raise NotATrace("header damaged")
        major, _, order, begin, size, self.part, self.tick_ns, self.file_id = struct.unpack_from("<HHIIIIIQ", data, 8)
        if major > MAJOR:
            raise NewerVersion(major)
        meta = data[begin : begin + size]
        if order != 0x01020304 or zlib.crc32(meta) != struct.unpack_from("<I", data, 56)[0]:
            raise NotATrace("header damaged")
        self.meta = json.loads(meta)
        self.start = begin + size
        self.notice = None
        minor = struct.unpack_from("<H", data, 10)[0]
        if minor >= 2 and begin >= 128 and any(data[64:128]):
            if zlib.crc32(data[64:124]) == struct.unpack_from("<I", data, 124)[0]:
                self.notice = struct.unpack_from("<IIQQQIiii", data, 64)
            else:
                self.damaged_bytes += 64

    def missing(self):
        """What the notice tells, as records."""
        _, _, time_ns, ops, end_ns, reason, status, signal, tid = self.notice
        yield "heartbeat", {"time_ns": time_ns}
        if ops:
            yield "loss", {"time_ns": time_ns, "thread": NONE, "first_ordinal": 0, "count": ops, "why": 2}
        if reason:
            yield "end", {"time_ns": end_ns, "reason": reason, "status": status, "signal": signal, "tid": tid,
                          "fault": 0, "modules": [], "frames": []}

    # -- pieces

    def whole(self, at):
        """The piece at this offset if it is whole: (kind, header size, end, sequence, raw size); "cut"; or None."""
        data = self.data
        if at + PIECE_HEADER > len(data):
            return "cut"
        kind = data[at : at + 4]
        if kind not in (SEGMENT, PIECE, INDEX):
            return None
        size = int.from_bytes(data[at + 8 : at + 11], "little")
        raw = int.from_bytes(data[at + 11 : at + 14], "little")
        if size > DATA_MAX or raw > RAW_MAX or data[at + 23] > 64:
            return None
        header = SEGMENT_HEADER if kind == SEGMENT else PIECE_HEADER
        end = at + header + size
        if end > len(data):
            return "cut"
        if zlib.crc32(data[at + 8 : end]) != struct.unpack_from("<I", data, at + 4)[0]:
            return None
        if kind == SEGMENT:
            tick_ns, major = struct.unpack_from("<IH", data, at + 40)
            if tick_ns == 0 or major > MAJOR:
                return None
        return kind, header, end, struct.unpack_from("<I", data, at + 14)[0], raw

    def resync(self, at):
        while True:
            at = self.data.find(b"FR", at)
            if at < 0:
                return len(self.data)
            if isinstance(self.whole(at), tuple):
                return at
            at += 1

    def pieces(self):
        """(offset, is first, data, raw size, tick_ns) of all usable pieces. Send False back to reject one."""
        at, usable, expected, lowest = self.start, False, 0, 0
        while at < len(self.data):
            piece = self.whole(at)
            if not isinstance(piece, tuple):
                following = self.resync(at + 1)
                if following == len(self.data) and (piece == "cut" or self.data[-8:] == bytes(8)):
                    self.torn_tail = True
                else:
                    self.damaged_bytes += following - at
                at, usable = following, False
                continue
            kind, header, end, sequence, raw = piece
            if kind == INDEX:
                usable, self.closed = False, end == len(self.data)
            elif kind == SEGMENT:
                file_id, tick_ns = struct.unpack_from("<QI", self.data, at + 32)
                usable = file_id == self.file_id and sequence >= lowest
            else:
                usable = usable and sequence == expected
            if usable:
                expected = lowest = self.lowest = sequence + 1
                accepted = yield at, kind == SEGMENT, self.data[at + header : end], raw, tick_ns
                usable = accepted is not False
            elif kind != INDEX:
                self.damaged_bytes += end - at
            at = end

    def events(self):
        """(name, fields) of all records, ops included, in file order."""
        segment, pieces, answer, self.lowest = None, self.pieces(), None, 0
        while True:
            try:
                _, first, data, raw_bytes, tick_ns = pieces.send(answer)
            except StopIteration:
                if self.notice and self.lowest <= self.notice[1]:
                    yield from self.missing()
                return
            if first:
                segment = Segment(tick_ns)
            answer = None
            try:
                raw = segment.decompressor.decompress(data)
                if len(raw) != raw_bytes:
                    raise Damage("wrong size")
                yield from self.records(segment, raw)
            except (Damage, zstandard.ZstdError):
                self.damaged_bytes += len(data)
                answer = False

    @staticmethod
    def records(segment, raw):
        at = 0
        while at < len(raw):
            kind, size = raw[at], int.from_bytes(raw[at + 1 : at + 4], "little")
            if at + 4 + size > len(raw):
                raise Damage("record beyond the piece")
            body = Body(raw[at + 4 : at + 4 + size])
            at += 4 + size
            if kind == TEMPLATE:
                segment.template(body)
            elif kind == TEXT:
                segment.text(body.take(size))
            elif kind == OPS:
                for op in segment.batch(body):
                    yield "op", op
            else:
                event = segment.record(kind, body)
                if event:
                    yield event

    def ops(self):
        return (fields for name, fields in self.events() if name == "op")


def main():
    for path in sys.argv[1:]:
        for name, fields in FrecReader(path).events():
            print(json.dumps({"event": name, **fields}))


if __name__ == "__main__":
    main()
