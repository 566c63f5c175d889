// The client in client.go tests the promises of docs/reference/native.md. The program prints a line for each chapter;
// any other line describes a failure.
//
// Usage: native ADDRESS TLS_ADDRESS AUTHORITY CERTIFICATE KEY
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"reflect"
	"strings"
	"time"
)

var address = os.Args[1]

func expect(got, wanted interface{}, what string) {
	if !reflect.DeepEqual(got, wanted) {
		fail("%s: got %#v, wanted %#v", what, got, wanted)
	}
}

func refused(f frame, code, what string) {
	if f.kind != ERROR && f.kind != REFUSED {
		fail("%s: was not refused: %s", what, f.payload)
	}
	expect(f.object()["code"], code, what)
	if f.object()["message"] == "" || f.object()["remedy"] == "" {
		fail("%s: says too little: %s", what, f.payload)
	}
}

func number(value interface{}) uint64 { return uint64(value.(float64)) }

func bodies(messages []message) string {
	var out []string
	for _, m := range messages {
		out = append(out, m.body)
	}
	return strings.Join(out, " ")
}

func dial(preface string) *client {
	socket, err := net.Dial("tcp", address)
	check(err, "dial")
	return begin(socket, preface)
}

func connect(capabilities ...string) *client {
	c := dial("PENSTOCK")
	c.hello([]int{1}, capabilities...)
	if f := c.login(object{"mechanism": "PLAIN", "user": "guest", "password": "guest", "vhost": "/"}); f.kind != READY {
		fail("login: %s", f.payload)
	}
	return c
}

func logins() {
	refused(dial("PENSTOCL").await(0, ERROR), "preface", "another preface")
	refused(dial("PENSTOCK").hello([]int{7}), "version", "version 7")
	c := dial("PENSTOCK")
	welcome := c.hello([]int{7, 1}, "zstd", "telepathy").object()
	expect(welcome["version"], 1.0, "version")
	refused(c.login(object{"mechanism": "PLAIN", "user": "guest", "password": "?", "vhost": "/"}), "login_refused", "password")
	c = dial("PENSTOCK") // all at once
	c.send(HELLO, 0, asJSON(object{"versions": []int{1}, "client": "go/1", "capabilities": []string{}}))
	c.send(LOGIN, 0, asJSON(object{"mechanism": "PLAIN", "user": "guest", "password": "guest", "vhost": "/"}))
	c.send(PING, 9, nil)
	c.request++
	c.send(REQUEST, c.request, asJSON(object{"do": "topics"}))
	c.await(9, PONG)
	expect(c.await(1, RESPONSE).object(), object{"topics": []interface{}{}}, "topics")

	pem, err := os.ReadFile(os.Args[3])
	check(err, "authority")
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	own, err := tls.LoadX509KeyPair(os.Args[4], os.Args[5])
	check(err, "certificate")
	socket, err := tls.Dial("tcp", os.Args[2], &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{own}})
	check(err, "TLS")
	c = begin(socket, "PENSTOCK")
	expect(c.hello([]int{1}).object()["mechanisms"], []interface{}{"PLAIN", "EXTERNAL"}, "mechanisms behind TLS")
	f := c.login(object{"mechanism": "EXTERNAL", "vhost": "/"})
	expect(f.object(), object{"user": "guest", "vhost": "/"}, "EXTERNAL")
}

func producing() {
	c := connect("zstd")
	c.do(object{"do": "open_producer", "handle": 1, "topic": "made", "create": true})
	c.do(object{"do": "read", "handle": 2, "topic": "made", "start": "earliest"})
	c.grant(2, 1000, 1<<20)
	start := c.publish(1, records("ann", "a", "b")) // also what the others are behind
	for acks := uint8(0); acks <= 2; acks++ {
		for codec := uint8(0); codec <= lz4Codec; codec++ {
			c.produce(1, uint64(10*acks+codec), acks, codec, records("", fmt.Sprint(acks, codec)))
			if acks > 0 {
				expect(c.confirmed(1).Sequence, uint64(10*acks+codec), "confirm")
			}
		}
	}
	got := c.receive(2, 11)
	expect(bodies(got), "a b 0 0 0 1 0 2 1 0 1 1 1 2 2 0 2 1 2 2", "acks and compression")
	expect(message{tag: 1, position: start, topic: "made", key: "ann", body: "a", time: got[0].time}, got[0], "the first")
	if age := time.Now().UnixNano()/1e6 - got[0].time; age < 0 || age > 60000 {
		fail("the first is %d ms old", age)
	}
	c.produce(1, 77, 2, 0, []record{{properties("x-penstock-x", "1"), nil}, {properties("", ""), nil}})
	f := c.await(1, REFUSED)
	refused(f, "reserved_header", "a header of the gateway's")
	expect([]interface{}{f.object()["sequence"], f.object()["count"]}, []interface{}{77.0, 2.0}, "what was refused")
	refused(c.ask(object{"do": "open_producer", "handle": 1, "topic": "made"}), "handle_in_use", "a handle twice")
	refused(c.ask(object{"do": "open_producer", "handle": 3, "topic": "none"}), "not_found", "no topic")
	refused(c.ask(object{"do": "fly"}), "unknown_request", "a request")
	refused(c.ask(object{"do": "topics", "all": true}), "bad_field", "a field")
	c.produce(9, 0, 2, 0, records("", "x"))
	refused(c.await(9, REFUSED), "unknown_handle", "a producer that nobody opened")
}

func named() {
	open := object{"do": "open_producer", "handle": 1, "topic": "named", "create": true, "name": "shop"}
	c := connect()
	open["epoch"] = c.do(open)["epoch"]
	c.produce(1, 0, 2, 0, records("", "a", "b"))
	first := c.confirmed(1)
	c.produce(1, 2, 2, 0, records("", "c")) // whose confirm nobody waits for
	c.Close()
	c = connect()
	expect(c.do(open)["epoch"], open["epoch"], "the epoch")
	c.produce(1, 0, 2, 0, records("", "a", "b"))
	again := c.confirmed(1)
	expect(again, confirm{0, first.Position, 2, 1}, "what came again")
	c.produce(1, 2, 2, 0, records("", "c"))
	c.confirmed(1)
	c.produce(1, 9, 2, 0, records("", "z"))
	refused(c.await(1, REFUSED), "out_of_sequence", "a gap")
	delete(open, "epoch")
	other := connect()
	other.do(open)
	other.produce(1, 0, 2, 0, records("", "d"))
	other.confirmed(1)
	c.produce(1, 3, 2, 0, records("", "z"))
	refused(c.await(1, REFUSED), "fenced", "an older epoch")
	c.do(object{"do": "read", "handle": 2, "topic": "named", "start": "earliest"})
	c.grant(2, 100, 1<<20)
	expect(bodies(c.receive(2, 4)), "a b c d", "what was kept")
}

// consumer is subscribed from the beginning, with credit for 100 messages of 1 MiB; extra fields as they are.
func (c *client) consumer(handle uint32, subscription string, fields object) {
	request := object{"do": "subscribe", "handle": handle, "topic": "jobs", "subscription": subscription, "start": "earliest"}
	for name, value := range fields {
		request[name] = value
	}
	c.do(request)
	c.grant(handle, 100, 1<<20)
}

func settling() {
	c := connect()
	c.do(object{"do": "open_producer", "handle": 1, "topic": "jobs", "create": true})
	positions := c.publish(1, records("", "a", "b", "c", "d", "e"))
	c.do(object{"do": "create_topic", "topic": "dead"})
	c.consumer(2, "work", object{"ack_timeout_ms": 600000, "max_deliveries": 3, "dead_letter": "dead"})
	expect(bodies(c.receive(2, 5)), "a b c d e", "delivered")
	expect(c.settle(2, 0, 2, 3).kind, uint8(RESPONSE), "a receipt")
	refused(c.settle(2, 1, 1, 1), "not_cumulative", "cumulative in a shared subscription")
	c.giveBack(2, 0, 0, 4, 4)
	again := c.receive(2, 1)[0]
	expect(again, message{tag: 6, position: positions + 3, time: again.time, given: 1, again: true, topic: "jobs", body: "d"}, "given back")
	expect(number(c.do(object{"do": "extend", "handle": 2, "ranges": [][]int{{1, 6}}})["extended"]), uint64(3), "extended")
	c.giveBack(2, 0, 1, 6, 6)
	c.do(object{"do": "read", "handle": 3, "topic": "dead", "start": "earliest"})
	c.grant(3, 1, 1<<20)
	expect(bodies(c.receive(3, 1)), "d", "rejected")
	about := c.do(object{"do": "describe", "topic": "jobs"})["subscriptions"].(object)["work"].(object)
	expect([]interface{}{about["unacked"], about["backlog"], about["lag"]}, []interface{}{2.0, 0.0, 2.0}, "what is out")
	c.do(object{"do": "close", "handle": 2})
	c.consumer(2, "work", object{"ack_timeout_ms": 600000, "max_deliveries": 3, "dead_letter": "dead"})
	expect(bodies(c.receive(2, 2)), "a e", "after a close")
	refused(c.ask(object{"do": "subscribe", "handle": 4, "topic": "jobs", "subscription": "work"}), "inequivalent", "other options")
	c.do(object{"do": "pause", "topic": "jobs", "subscription": "work"})
	c.do(object{"do": "seek", "topic": "jobs", "subscription": "work", "to": fmt.Sprint("pos:", positions+1)})
	void := c.await(2, EVENT).object()
	expect(void["event"], "void", "seek")
	c.publish(1, records("", "f"))
	expect(len(c.pull(2, 10, 1, 50)), 0, "pulled from what is paused")
	c.do(object{"do": "resume", "topic": "jobs", "subscription": "work"})
	got := c.receive(2, 5)
	expect(bodies(got), "b c d e f", "after a seek")
	expect(got[0].tag, number(void["next_tag"]), "the next tag")
}

func slot(key string) uint16 {
	hash := fnv.New64a()
	hash.Write([]byte(key))
	h := hash.Sum64()
	return uint16((h ^ h>>32) * 0x9E3779B97F4A7C15 >> 48)
}

func kinds() {
	expect([]uint16{slot(""), slot("ann"), slot("k0")}, []uint16{34160, 1183, 11300}, "slots")
	a, b := connect(), connect()
	a.consumer(1, "alone", object{"kind": "exclusive"})
	got := a.receive(1, 6)
	expect(a.settle(1, 1, 0, got[4].tag).kind, uint8(RESPONSE), "cumulative")
	go func(alive *client) { // answers the PING that asks whether it is alive
		for {
			alive.read()
		}
	}(a)
	refused(b.ask(object{"do": "subscribe", "handle": 1, "topic": "jobs", "subscription": "alone", "kind": "exclusive"}), "subscription_busy", "a second one")

	a = connect()
	a.consumer(1, "over", object{"kind": "failover", "priority": 1})
	expect(a.await(1, EVENT).object(), object{"event": "active"}, "the first")
	expect(bodies(a.receive(1, 6)), "a b c d e f", "the active one's")
	expect(a.settle(1, 1, 0, 2).kind, uint8(RESPONSE), "cumulative")
	b.consumer(1, "over", object{"kind": "failover", "priority": 2})
	expect(a.await(1, EVENT).object(), object{"event": "inactive"}, "the first, later")
	expect(a.await(1, EVENT).object()["event"], "void", "the first's")
	expect(b.await(1, EVENT).object(), object{"event": "active"}, "the second")
	expect(bodies(b.receive(1, 4)), "c d e f", "what was not settled")

	a.consumer(2, "hashed", object{"kind": "key_shared", "sticky": true, "ranges": [][]int{{0, 32767}}})
	b.consumer(2, "hashed", object{"kind": "key_shared", "sticky": true, "ranges": [][]int{{32768, 65535}}})
	refused(b.ask(object{"do": "subscribe", "handle": 3, "topic": "jobs", "subscription": "hashed", "kind": "key_shared", "sticky": true, "ranges": [][]int{{5, 6}}}), "subscription_busy", "overlapping ranges")
	a.do(object{"do": "open_producer", "handle": 9, "topic": "jobs"})
	for _, key := range []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"} {
		owner := []*client{a, b}[slot(key)>>15]
		a.publish(9, records(key, key+"!", key+"?"))
		got := owner.receive(2, 2)
		for got[0].key == "" { // those of before, whose key is the topic
			owner.inbox[2] = append(got, owner.inbox[2]...)[1:]
			got = owner.receive(2, 2)
		}
		expect(bodies(got), key+"! "+key+"?", "the holder of "+key)
	}
}

func reading() {
	c := connect("lz4")
	positions := []uint64{}
	c.do(object{"do": "open_producer", "handle": 1, "topic": "kept", "create": true})
	for i := 0; i < 3; i++ {
		positions = append(positions, c.publish(1, records("", fmt.Sprint(i, strings.Repeat("x", 400)))))
	}
	c.do(object{"do": "read", "handle": 2, "topic": "kept", "start": "earliest"})
	first := c.pull(2, 100, 3, 60000)
	expect(len(first), 3, "pulled")
	z := connect("zstd", "lz4")
	z.do(object{"do": "read", "handle": 2, "topic": "kept", "start": "earliest"})
	expect(bodies(z.pull(2, 100, 3, 60000)), bodies(first), "by another codec")
	expect([]bool{c.kinds[DELIVER_PACKED] > 0, z.kinds[DELIVER_PACKED] > 0}, []bool{true, true}, "DELIVER_PACKED came")
	for first[2].time >= time.Now().UnixNano()/1e6 { // so that the next one is younger
	}
	for i, start := range []interface{}{fmt.Sprint("pos:", positions[1]), first[1].time, "-1h", "latest"} {
		c.do(object{"do": "read", "handle": uint32(10 + i), "topic": "kept", "start": start})
	}
	c.publish(1, records("", "3"))
	expect(c.pull(10, 1, 1, 60000)[0].position, positions[1], "from a position")
	if m := c.pull(11, 1, 1, 60000)[0]; m.time < first[1].time || m.position > positions[1] {
		fail("from a time: %v", m)
	}
	expect(c.pull(12, 1, 1, 60000)[0].position, positions[0], "from an hour ago")
	expect(bodies(c.pull(13, 1, 1, 60000)), "3", "from the end")
	began := time.Now()
	expect(len(c.pull(13, 1, 1, 100)), 0, "nothing more")
	if time.Since(began) < 90*time.Millisecond {
		fail("a pull of 100 ms waited %v", time.Since(began))
	}

	c = connect("stored")
	c.do(object{"do": "open_producer", "handle": 1, "topic": "many", "create": true})
	var all []string
	for i := 0; i < 100; i++ {
		all = append(all, fmt.Sprint(i))
	}
	c.publish(1, records("key", all...))
	c.do(object{"do": "read", "handle": 2, "topic": "many", "start": "earliest"})
	c.grant(2, 1000, 1<<20)
	expect(bodies(c.receive(2, 100)), strings.Join(all, " "), "stored")
	expect(c.kinds[DELIVER_STORED] > 0, true, "DELIVER_STORED came")
}

func delaying() {
	c := connect()
	c.do(object{"do": "open_producer", "handle": 1, "topic": "later", "create": true})
	c.do(object{"do": "read", "handle": 2, "topic": "later", "start": "earliest"})
	c.grant(2, 10, 1<<20)
	soon, hour := time.Now().Add(300*time.Millisecond), time.Now().Add(time.Hour)
	c.produceAt(1, 0, hour, records("", "never"))
	position := c.confirmed(1).Position
	c.produceAt(1, 1, soon, records("", "soon"))
	c.confirmed(1)
	about := object{"do": "cancel", "topic": "later", "position": position, "due_ms": hour.UnixNano() / 1e6}
	expect(c.do(about)["cancelled"], true, "cancel")
	expect(c.do(about)["cancelled"], false, "cancel twice")
	expect(bodies(c.receive(2, 1)), "soon", "what was delayed")
	if time.Now().Before(soon) {
		fail("it came %v early", time.Until(soon))
	}
}

func transacting() {
	c := connect()
	c.do(object{"do": "open_producer", "handle": 1, "topic": "in", "create": true})
	c.do(object{"do": "open_producer", "handle": 2, "topic": "out", "create": true})
	c.publish(1, records("", "a", "b"))
	c.do(object{"do": "subscribe", "handle": 3, "topic": "in", "subscription": "s", "start": "earliest"})
	c.grant(3, 10, 1<<20)
	c.receive(3, 2)
	transact := func(last uint64) frame {
		c.request++
		data := encode(records("", "made of a"))
		batch := append(pack(uint32(2), uint32(1), uint32(len(data))), data...)
		c.send(TRANSACT, c.request, append(append(pack(uint16(1), uint16(1)), batch...), pack(uint32(3), uint32(1), uint64(1), last)...))
		return c.await(c.request, RESPONSE, ERROR)
	}
	refused(transact(9), "stale_delivery", "a tag that is not out")
	done := transact(1).object()["positions"].([]interface{})
	c.do(object{"do": "read", "handle": 4, "topic": "out", "start": "earliest"})
	got := c.pull(4, 10, 1, 60000)
	expect(fmt.Sprint(bodies(got), " ", got[0].position), fmt.Sprint("made of a ", number(done[0])), "one of the two transactions")
	c.do(object{"do": "close", "handle": 3})
	c.do(object{"do": "subscribe", "handle": 3, "topic": "in", "subscription": "s"})
	expect(bodies(c.pull(3, 10, 1, 60000)), "b", "what was not acknowledged")
}

func halves() {
	c := connect()
	c.do(object{"do": "create_topic", "topic": "halves"})
	c.do(object{"do": "open_producer", "handle": 1, "topic": "halves", "group": "shop", "check_after_ms": 200, "check_each_ms": 200, "max_checks": 1000})
	c.do(object{"do": "read", "handle": 2, "topic": "halves", "start": "earliest"})
	prepare := func(body string) float64 {
		c.request++
		c.send(PREPARE, 1, append(pack(c.request), encode(records("", body))...))
		return c.await(c.request, RESPONSE, ERROR).object()["transaction"].(float64)
	}
	yes, no, asked := prepare("yes"), prepare("no"), prepare("asked")
	c.do(object{"do": "decide", "transaction": no, "commit": false})
	position := number(c.do(object{"do": "decide", "transaction": yes})["position"])
	got := c.pull(2, 10, 1, 60000)
	expect(fmt.Sprint(bodies(got), " ", got[0].position), fmt.Sprint("yes ", position), "what was committed")
	question := c.await(1, CHECK)
	for big.Uint64(question.payload) != uint64(asked) { // it may have asked about the others before they were decided
		question = c.await(1, CHECK)
	}
	expect(string(question.payload[len(question.payload)-5:]), "asked", "its body")
	c.do(object{"do": "decide", "transaction": asked})
	refused(c.ask(object{"do": "decide", "transaction": asked}), "half_unknown", "decided twice")
	expect(bodies(c.pull(2, 10, 1, 60000)), "asked", "after the question")
}

func queues() {
	c := connect()
	c.do(object{"do": "declare_queue", "queue": "work", "arguments": object{"x-max-length": 1000}})
	c.do(object{"do": "bind", "queue": "work", "exchange": "amq.topic", "routing_key": "weather.#"})
	c.do(object{"do": "open_producer", "handle": 1, "exchange": "amq.topic", "routing_key": "weather.oslo"})
	c.publish(1, records("", "rain"))
	c.do(object{"do": "subscribe", "handle": 2, "queue": "work"})
	got := c.pull(2, 5, 1, 60000)
	expect(got[0].topic+" "+bodies(got), "weather.oslo rain", "from a queue")
	expect(c.settle(2, 0, 1, 1).kind, uint8(RESPONSE), "a receipt")
	expect(number(c.do(object{"do": "delete_queue", "queue": "work"})["messages"]), uint64(0), "what was left")
	expect(c.await(2, EVENT).object()["event"], "closed", "of a queue that is gone")
	refused(c.settle(2, 0, 1, 1), "unknown_handle", "a receipt from it")
	c.do(object{"do": "open_producer", "handle": 5, "topic": "outbox", "create": true, "name": "db", "numbered": true})
	for _, row := range []uint64{7, 9, 7} {
		c.produce(5, row, 2, 0, records("", "row"))
		expect(c.confirmed(5).Flags == 1, c.kinds[CONFIRM] == 4, "whether it is a duplicate")
	}
}

func main() {
	for _, chapter := range []struct {
		name string
		run  func()
	}{{"logins", logins}, {"producing", producing}, {"named", named}, {"settling", settling}, {"kinds", kinds},
		{"reading", reading}, {"delaying", delaying}, {"transacting", transacting}, {"halves", halves}, {"queues", queues}} {
		chapter.run()
		fmt.Println(chapter.name)
	}
}
