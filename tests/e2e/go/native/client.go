// A client of the native protocol, written from docs/reference/native.md and tests/golden/native-frames.json alone:
// one goroutine, which reads frames until the one it waits for has come and keeps the others.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const (
	HELLO, WELCOME, LOGIN, READY, REQUEST, RESPONSE, PING, PONG, ERROR = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x0F

	PRODUCE, PRODUCE_AT, CONFIRM, REFUSED, TRANSACT, PREPARE = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15

	CREDIT, DELIVER, ACK, NACK, PULL, PULLED, EVENT, CHECK       = 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27
	DELIVER_PACKED, DELIVER_STORED                               = 0x28, 0x29
	zstdCodec                                              uint8 = 1
	lz4Codec                                               uint8 = 2
	waitAtMost                                                   = 60 * time.Second
)

type object = map[string]interface{}

type frame struct {
	kind    uint8
	id      uint32
	payload []byte
}

type record struct{ properties, body []byte }

type message struct {
	tag, position    uint64
	time             int64
	again            bool   // may have been delivered before
	given            uint16 // how often it was given back
	pull             uint32
	topic, key, body string
}

type client struct {
	net.Conn
	reader  *bufio.Reader
	waiting []frame
	inbox   map[uint32][]message
	kinds   map[uint8]int // how many frames of each type came
	request uint32
}

var big = binary.BigEndian

func fail(format string, arguments ...interface{}) {
	fmt.Printf(format+"\n", arguments...)
	os.Exit(1)
}

func check(err error, what string) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

// pack writes values one behind the other, big-endian.
func pack(values ...interface{}) []byte {
	out := new(bytes.Buffer)
	for _, value := range values {
		check(binary.Write(out, big, value), "pack")
	}
	return out.Bytes()
}

func asJSON(value interface{}) []byte {
	out, err := json.Marshal(value)
	check(err, "JSON")
	return out
}

func (f frame) object() object {
	out := object{}
	check(json.Unmarshal(f.payload, &out), fmt.Sprintf("JSON of frame %#x", f.kind))
	return out
}

func begin(socket net.Conn, preface string) *client {
	check(socket.SetDeadline(time.Now().Add(2*waitAtMost)), "deadline")
	c := &client{Conn: socket, reader: bufio.NewReader(socket), inbox: map[uint32][]message{}, kinds: map[uint8]int{}}
	_, err := io.WriteString(c, preface)
	check(err, "preface")
	return c
}

func (c *client) send(kind uint8, id uint32, payload []byte) {
	_, err := c.Write(append(pack(uint32(len(payload)+8), kind, uint8(0), uint16(0), id), payload...))
	check(err, fmt.Sprintf("frame %#x", kind))
}

// read takes one frame; deliveries go to the inbox of their handle, a PING is answered.
func (c *client) read() frame {
	head := make([]byte, 12)
	_, err := io.ReadFull(c.reader, head)
	check(err, "the gateway")
	f := frame{head[4], big.Uint32(head[8:]), make([]byte, big.Uint32(head)-8)}
	_, err = io.ReadFull(c.reader, f.payload)
	check(err, "the gateway")
	c.kinds[f.kind]++
	switch f.kind {
	case PING:
		c.send(PONG, f.id, nil)
	case DELIVER:
		c.deliver(f.id, f.payload)
	case DELIVER_PACKED:
		c.deliver(f.id, unpack(f.payload))
	case DELIVER_STORED:
		c.deliverStored(f.id, f.payload)
	}
	return f
}

// await takes the first frame of one of these types with this id, and keeps what else comes for later.
func (c *client) await(id uint32, kinds ...uint8) frame {
	fits := func(f frame) bool { return f.id == id && bytes.IndexByte(kinds, f.kind) >= 0 }
	for i, f := range c.waiting {
		if fits(f) {
			c.waiting = append(c.waiting[:i:i], c.waiting[i+1:]...)
			return f
		}
	}
	for {
		f := c.read()
		if fits(f) {
			return f
		}
		if f.kind == ERROR {
			fail("instead of %#x: %s", kinds, f.payload)
		}
		c.waiting = append(c.waiting, f)
	}
}

func (c *client) ask(fields object) frame {
	c.request++
	c.send(REQUEST, c.request, asJSON(fields))
	return c.await(c.request, RESPONSE, ERROR)
}

// do makes a request that must be granted.
func (c *client) do(fields object) object {
	f := c.ask(fields)
	if f.kind == ERROR {
		fail("%v: %s", fields, f.payload)
	}
	return f.object()
}

func (c *client) hello(versions []int, capabilities ...string) frame {
	c.send(HELLO, 0, asJSON(object{"versions": versions, "client": "go/1", "capabilities": append([]string{}, capabilities...)}))
	return c.await(0, WELCOME, ERROR)
}

func (c *client) login(fields object) frame {
	c.send(LOGIN, 0, asJSON(fields))
	return c.await(0, READY, ERROR)
}

// properties are "keep it" (delivery-mode 2), and the header x-key where there is a key.
func properties(header, value string) []byte {
	if header == "" {
		return []byte{0x10, 0, 2}
	}
	entry := pack(uint8(len(header)), []byte(header), uint8('S'), uint32(len(value)), []byte(value))
	return pack(uint16(0x3000), uint32(len(entry)), entry, uint8(2))
}

// keyOf finds the header x-key where it is the first property and the first header.
func keyOf(properties []byte) string {
	if len(properties) < 17 || big.Uint16(properties)&0x2000 == 0 || string(properties[6:13]) != "\x05x-keyS" {
		return ""
	}
	return string(properties[17 : 17+big.Uint32(properties[13:])])
}

func records(key string, bodies ...string) (out []record) {
	for _, body := range bodies {
		header := ""
		if key != "" {
			header = "x-key"
		}
		out = append(out, record{properties(header, key), []byte(body)})
	}
	return out
}

func encode(records []record) []byte {
	var out []byte
	for _, r := range records {
		out = append(out, pack(uint32(len(r.properties)), uint32(len(r.body)), r.properties, r.body)...)
	}
	return out
}

func compress(codec uint8, raw []byte) []byte {
	out := bytes.NewBuffer(pack(uint32(len(raw))))
	var w io.WriteCloser = lz4.NewWriter(out)
	if codec == zstdCodec {
		w, _ = zstd.NewWriter(out)
	}
	_, err := w.Write(raw)
	check(err, "compressing")
	check(w.Close(), "compressing")
	return out.Bytes()
}

// unpack knows a zstd frame by its magic number; the other one is LZ4's.
func unpack(packed []byte) []byte {
	raw := make([]byte, big.Uint32(packed))
	var r io.Reader = lz4.NewReader(bytes.NewReader(packed[4:]))
	if bytes.HasPrefix(packed[4:], []byte{0x28, 0xB5, 0x2F, 0xFD}) {
		r, _ = zstd.NewReader(bytes.NewReader(packed[4:]))
	}
	_, err := io.ReadFull(r, raw)
	check(err, "decompressing")
	return raw
}

func (c *client) produce(handle uint32, sequence uint64, acks, codec uint8, records []record) {
	data := encode(records)
	if codec != 0 {
		data = compress(codec, data)
	}
	c.send(PRODUCE, handle, append(pack(sequence, acks, codec, uint16(0), uint32(len(records))), data...))
}

func (c *client) produceAt(handle uint32, sequence uint64, due time.Time, records []record) {
	head := pack(sequence, uint8(2), uint8(0), uint16(0), uint32(len(records)), due.UnixNano()/1e6)
	c.send(PRODUCE_AT, handle, append(head, encode(records)...))
}

type confirm struct {
	Sequence, Position uint64
	Count, Flags       uint32
}

func (c *client) confirmed(handle uint32) (out confirm) {
	f := c.await(handle, CONFIRM, REFUSED)
	if f.kind == REFUSED {
		fail("refused: %s", f.payload)
	}
	check(binary.Read(bytes.NewReader(f.payload), big, &out), "CONFIRM")
	return out
}

// publish is a batch that is waited for; the answer is the position of its first message.
func (c *client) publish(handle uint32, records []record) uint64 {
	c.produce(handle, 0, 2, 0, records)
	return c.confirmed(handle).Position
}

func (c *client) grant(handle, messages, bytes uint32) { c.send(CREDIT, handle, pack(messages, bytes)) }

func (c *client) deliver(handle uint32, data []byte) {
	tag, count, pull := big.Uint64(data), big.Uint32(data[8:]), big.Uint32(data[12:])
	data = data[16:]
	for i := uint64(0); i < uint64(count); i++ {
		given, key := big.Uint16(data[18:]), 28+int(big.Uint16(data[16:]))
		props := key + int(big.Uint32(data[20:]))
		end := props + int(big.Uint32(data[24:]))
		m := message{tag: tag + i, position: big.Uint64(data), time: int64(big.Uint64(data[8:])), again: given>>15 == 1,
			given: given & 0x7FFF, pull: pull, topic: routingKey(data[28:key]), key: keyOf(data[key:props]), body: string(data[props:end])}
		c.inbox[handle], data = append(c.inbox[handle], m), data[end:]
	}
	if len(data) != 0 {
		fail("%d bytes behind the last message", len(data))
	}
}

func routingKey(block []byte) string { return string(block[2+int(block[0]):]) }

// deliverStored takes batches of the log apart (docs/reference/format.md, 2), which are little-endian.
func (c *client) deliverStored(handle uint32, data []byte) {
	tag, position, count, castagnoli := big.Uint64(data), big.Uint64(data[8:]), big.Uint32(data[16:]), crc32.MakeTable(crc32.Castagnoli)
	small := binary.LittleEndian
	for data = data[24:]; len(data) > 0; data = data[small.Uint32(data):] {
		blob := small.Uint32(data[8:])
		end := blob + small.Uint32(data[88:])
		if crc32.Checksum(data[8:blob], castagnoli) != small.Uint32(data[4:]) || crc32.Checksum(data[blob:end], castagnoli) != small.Uint32(data[12:]) {
			fail("a damaged batch")
		}
		for i := uint32(0); i < small.Uint32(data[84:]); i++ {
			head := data[96+32*i:]
			all := data[blob+small.Uint32(head):][:small.Uint32(head[4:])]
			key, props := small.Uint16(head[24:]), small.Uint32(head[8:])
			m := message{tag: tag, position: small.Uint64(data[32:]) + uint64(i), topic: routingKey(all[:key]),
				time: int64(small.Uint64(data[56:])) + int64(small.Uint32(head[16:])), body: string(all[uint32(key)+props:])}
			if m.position != position {
				fail("stored position %d, not %d", m.position, position)
			}
			c.inbox[handle] = append(c.inbox[handle], m)
			tag, position, count = tag+1, position+1, count-1
		}
	}
	if count != 0 {
		fail("%d messages too few in stored batches", count)
	}
}

// receive takes so many messages of a consumer.
func (c *client) receive(handle uint32, n int) []message {
	for len(c.inbox[handle]) < n {
		if f := c.read(); f.kind == ERROR {
			fail("instead of messages: %s", f.payload)
		} else if f.kind != DELIVER && f.kind != DELIVER_PACKED && f.kind != DELIVER_STORED {
			c.waiting = append(c.waiting, f)
		}
	}
	out := c.inbox[handle][:n:n]
	c.inbox[handle] = c.inbox[handle][n:]
	return out
}

// settle acknowledges (with a receipt) a run of tags.
func (c *client) settle(handle uint32, flags uint8, first, last uint64) frame {
	c.request++
	ranges := pack(first, last)
	c.send(ACK, handle, append(pack(c.request, flags, uint8(0), uint16(0)), ranges...))
	return c.await(c.request, RESPONSE, ERROR)
}

func (c *client) giveBack(handle uint32, delayMS int32, flags uint8, first, last uint64) {
	c.send(NACK, handle, pack(delayMS, flags, uint8(0), uint16(0), first, last))
}

// pull waits for messages and tells how many came.
func (c *client) pull(handle, most, least, waitMS uint32) []message {
	c.request++
	c.send(PULL, handle, pack(c.request, most, uint32(1<<20), least, uint32(0), waitMS))
	number := c.request
	for {
		f := c.await(handle, PULLED)
		if big.Uint32(f.payload) == number {
			return c.receive(handle, int(big.Uint32(f.payload[4:])))
		}
	}
}
