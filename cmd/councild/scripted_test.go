package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/spend"
)

// scripted is a provider that follows directions in the question. [a.answer=429] has the model a refuse the first
// request for its answer, for example. Its replies depend on nothing but the requests, and not on their order, so that
// each daemon that resumes a session gets the same ones. It is independent of simllm, whose texts may change.
type scripted struct {
	URL   string
	Delay time.Duration // how much longer each reply takes

	mu     sync.Mutex // guards all below
	got    map[string][]string
	tries  map[string]int // by question, model, kind and prompt
	beside map[string]int // requests to judges and for embeddings that are in flight, by question
	gates  map[string]int // how many requests of a question are answered; all others hang. nil: all are answered
	active time.Time      // when a request last began or ended
	billed spend.USD      // what the replies cost at scriptedPrice
}

// scriptedPrice is the price of each model, in US dollars for a million tokens of input and of output.
const scriptedPrice = "1.25/10"

// direction is what the questions tell the provider to do, as in [a.answer=429].
var direction = regexp.MustCompile(`\[(\w+)\.(\w+)=(\w+)\]`)

// questionMark matches the mark of a question, which each prompt and each answer holds.
var questionMark = regexp.MustCompile(`\bq-\d{4}\b`)

// shownAnswer matches an answer in the prompt of a reviewer.
var shownAnswer = regexp.MustCompile(`(?s)=== BEGIN ANSWER [0-9a-f]{16}: ([^\n]+) ===\n(.*?)\n=== END ANSWER`)

// judgementToken matches the token in a judge's prompt.
var judgementToken = regexp.MustCompile(`=== BEGIN QUESTION ([0-9a-f]{16}) ===`)

func newScripted(t *testing.T) *scripted {
	t.Helper()
	p := &scripted{got: map[string][]string{}, tries: map[string]int{}, beside: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(t, w, r) }))
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// asked returns the requests for a question, sorted.
func (p *scripted) asked(question string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, slices.Sorted(slices.Values(p.got[question]))...)
}

// busy reports whether there was a request.
func (p *scripted) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.got) > 0
}

// quiet waits until no request has begun or ended for some time.
func (p *scripted) quiet(d time.Duration) {
	for {
		p.mu.Lock()
		left := d - time.Since(p.active)
		p.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// hold begins the life of another daemon. It answers so many requests of each question, and lets all others hang.
func (p *scripted) hold(gates map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gates = gates
	p.tries = map[string]int{}
	p.active = time.Now()
}

// scriptedRequest is a request to the provider.
type scriptedRequest struct {
	Model    string
	Messages []struct{ Role, Content string }
	Input    []string
	Stream   bool

	prompt   string
	kind     string // answer, review, repair, synthesis, judgement or embedding
	question string
}

// readScripted reads the body of a request.
func readScripted(raw []byte) (q scriptedRequest, err error) {
	if err := json.Unmarshal(raw, &q); err != nil {
		return q, err
	}
	last := ""
	for _, m := range q.Messages {
		q.prompt += m.Content + "\n"
		last = m.Content
	}
	q.prompt += strings.Join(q.Input, "\n")
	q.question = questionMark.FindString(q.prompt)
	switch {
	case len(q.Input) > 0:
		q.kind = "embedding"
	case strings.Contains(q.prompt, "You are the chairman"):
		q.kind = "synthesis"
	case strings.Contains(q.prompt, "You are a reviewer") && !strings.Contains(last, "=== BEGIN QUESTION"):
		q.kind = "repair"
	case strings.Contains(q.prompt, "You are a reviewer"):
		q.kind = "review"
	case strings.Contains(last, `"rating"`):
		q.kind = "judgement"
	default:
		q.kind = "answer"
	}
	return q, nil
}

// directed returns what the question tells the model to do with this request, "" for nothing.
func (q scriptedRequest) directed() string {
	for _, d := range direction.FindAllStringSubmatch(q.prompt, -1) {
		if d[1] == q.Model && d[2] == q.kind {
			return d[3]
		}
	}
	return ""
}

// draw returns a number from 0 to n-1 that depends on the model and on texts.
func (q scriptedRequest) draw(n int, texts ...string) int {
	sum := sha256.Sum256([]byte(q.Model + "\x00" + strings.Join(texts, "\x00")))
	return int(binary.BigEndian.Uint32(sum[:]) % uint32(n))
}

func (p *scripted) serve(t *testing.T, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the daemon is gone
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write([]byte(`{"object":"list","data":[]}`))
		return
	}
	q, err := readScripted(raw)
	if err != nil || q.question == "" {
		t.Errorf("a request that cannot be read: %v: %.300s", err, raw)
		return
	}
	first, open, ended := p.begin(q)
	defer ended()
	if !open && (!q.Stream || q.draw(2, q.question, q.kind) == 0) {
		<-r.Context().Done()
		return
	}
	time.Sleep(p.Delay + time.Duration(1+q.draw(8, q.question, q.kind))*time.Millisecond)
	if q.kind == "synthesis" {
		p.waitForSides(q.question)
	}
	what := q.directed()
	switch {
	case what == "hang":
		<-r.Context().Done()
		return
	case what == "down":
		w.WriteHeader(http.StatusInternalServerError)
		return
	case what == "bad":
		w.WriteHeader(http.StatusBadRequest)
		return
	case what == "429" && first, what == "500" && first:
		status := http.StatusTooManyRequests
		if what == "500" {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
		return
	case what == "cut" && first:
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"choices":[`))
		return
	}
	text := q.text(what)
	p.bill(t, q, text)
	switch {
	case q.kind == "embedding":
		q.embed(w)
	case q.Stream:
		q.stream(w, r, text, open)
	default:
		reply, _ := json.Marshal(map[string]any{"message": map[string]string{"role": "assistant", "content": text}, "finish_reason": "stop"})
		_, _ = fmt.Fprintf(w, `{"choices":[%s],"usage":%s}`, reply, q.usage(text))
	}
}

// begin notes a request. It reports whether the request is the first of its kind, and whether it is to be answered.
func (p *scripted) begin(q scriptedRequest) (first, open bool, ended func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active = time.Now()
	key := q.question + " " + q.Model + "." + q.kind
	p.tries[key]++
	p.got[q.question] = append(p.got[q.question], q.Model+"."+q.kind)
	gate, limited := p.gates[q.question]
	open = !limited || gate > 0
	if limited {
		p.gates[q.question]--
	}
	side := q.kind == "judgement" || q.kind == "embedding"
	if side {
		p.beside[q.question]++
	}
	return p.tries[key] == 1, open, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.active = time.Now()
		if side {
			p.beside[q.question]--
		}
	}
}

// bill adds up what replies cost, also those that no daemon reads.
func (p *scripted) bill(t *testing.T, q scriptedRequest, text string) {
	t.Helper()
	tariff, err := spend.ParseTariff(scriptedPrice)
	if err != nil {
		t.Error(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	cost := tariff.Cost(spend.Tokens{Input: int64(len(q.prompt) / 4), Output: int64(len(text) / 4)})
	p.billed = p.billed.Plus(cost)
}

// bills returns what all replies cost.
func (p *scripted) bills() spend.USD {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.billed
}

// waitForSides waits until no judge and no embedding of the question is under way. A session does not wait for these,
// so that otherwise chance would decide whether they come in time.
func (p *scripted) waitForSides(question string) {
	for begun := time.Now(); time.Since(begun) < 10*time.Second; {
		time.Sleep(100 * time.Millisecond)
		p.mu.Lock()
		waits := p.beside[question] > 0
		p.mu.Unlock()
		if !waits {
			return
		}
	}
}

// text returns the text of the reply.
func (q scriptedRequest) text(what string) string {
	words := []string{"because", "light", "scatters", "more", "in", "thin", "air", "than", "waves", "of", "water", "which", "bend"}
	sentence := func(length int) string {
		var b strings.Builder
		for i := range length {
			b.WriteString(" " + words[q.draw(len(words), q.question, q.kind, strconv.Itoa(i))])
		}
		return b.String()
	}
	switch q.kind {
	case "review", "repair":
		if what == "prose" {
			return "I like all of them."
		}
		return q.ballot()
	case "judgement":
		token := judgementToken.FindStringSubmatch(q.prompt)
		_, axes, _ := strings.Cut(q.prompt, "Rate each of these axes: ")
		axes, _, _ = strings.Cut(axes, ".\n")
		ratings := map[string]any{}
		for axis := range strings.SplitSeq(axes, ", ") {
			ratings[axis] = map[string]any{"rating": 0, "quotes": []string{}}
		}
		reply, _ := json.Marshal(map[string]any{"token": token[1], "axes": ratings})
		return string(reply)
	case "synthesis":
		if strings.Contains(q.prompt, "{json}") {
			return `{"n": 7}`
		}
		return "Synthesis of " + q.Model + " for " + q.question + ":" + sentence(20)
	default:
		if what == "empty" {
			return ""
		}
		text := "Answer of " + q.Model + " to " + q.question + ":" + sentence(10+q.draw(20, q.question))
		if says, ok := strings.CutPrefix(what, "says"); ok {
			text += "\nANSWER: " + says
		}
		return text
	}
}

// ballot ranks the answers that the prompt shows.
func (q scriptedRequest) ballot() string {
	type shown struct {
		label string
		likes int
	}
	var all []shown
	for _, m := range shownAnswer.FindAllStringSubmatch(q.prompt, -1) {
		all = append(all, shown{m[1], q.draw(1<<30, m[2])})
	}
	slices.SortFunc(all, func(a, b shown) int { return b.likes - a.likes })
	ranking := []string{}
	scores := map[string]int{}
	for i, s := range all {
		ranking = append(ranking, s.label)
		scores[s.label] = 9 - i
	}
	ballot, _ := json.Marshal(map[string]any{"ranking": ranking, "scores": scores})
	return "The first is the best.\n\n```json\n" + string(ballot) + "\n```\n"
}

// usage returns the usage of a reply. The model c says what it costs too, and d says nothing.
func (q scriptedRequest) usage(text string) string {
	in := len(q.prompt) / 4
	out := len(text) / 4
	switch q.Model {
	case "c":
		return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"cost":%.8f}`, in, out, in+out,
			(1.25*float64(in)+10*float64(out))/1e6)
	case "d":
		return "null"
	default:
		return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, in, out, in+out)
	}
}

// stream sends a text in pieces. Where the request is not open, it hangs after the first half.
func (q scriptedRequest) stream(w http.ResponseWriter, r *http.Request, text string, open bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	pieces := [][]byte{[]byte(text[:len(text)/2]), []byte(text[len(text)/2:])}
	for i, piece := range pieces {
		if i == 1 && !open {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		delta, _ := json.Marshal(map[string]string{"content": string(piece)})
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":%s}]}\n\n", delta)
	}
	_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":%s}\n\ndata: [DONE]\n\n", q.usage(text))
}

// embed sends a vector for each text.
func (q scriptedRequest) embed(w http.ResponseWriter) {
	var b bytes.Buffer
	for i, text := range q.Input {
		var vector [16]float64
		vector[0] = 1
		for word := range strings.FieldsSeq(text) {
			h := fnv.New32a()
			_, _ = h.Write([]byte(word))
			vector[h.Sum32()%16]++
		}
		data, _ := json.Marshal(map[string]any{"object": "embedding", "index": i, "embedding": vector})
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(data)
	}
	tokens := len(q.prompt) / 4
	_, _ = fmt.Fprintf(w, `{"object":"list","data":[%s],"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, b.Bytes(), tokens, tokens)
}
