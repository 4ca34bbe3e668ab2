package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/councild/councild/internal/simllm"
)

// The parts of a session on the page.
const (
	answers    = `section[aria-labelledby="part-answers"]`
	reviews    = `#session .reviews`
	ranking    = `#session .ranking`
	audit      = `#session .audit`
	answer     = `section[aria-labelledby="part-answer"] .prose`
	judgedPart = `section[aria-labelledby="part-judged"]`
	said       = `#session .said[role="status"]`
)

// firstNotice is an expression for the first notice that is shown of a session, or "".
const firstNotice = `([...document.querySelectorAll("#session .notice")].find((n) => n.checkVisibility())?.textContent ?? "")`

// lostLine is the notice while the daemon does not answer.
const lostLine = "The connection to the daemon is lost. The session continues if the daemon is still running. " +
	"If the daemon has stopped, the session continues after a restart, but only if the daemon keeps sessions on disk. "

// seats returns an expression for what a list says of each of its members, by name.
func seats(list string) string {
	const state = `(item) => item.querySelector(".model").textContent + " " + item.querySelector(".state").textContent`
	return fmt.Sprintf(`[...document.querySelectorAll('%s .seats > *')].map(%s).sort().join(", ")`, list, state)
}

// nth returns a rank as the page writes it. If several of the standings share the rank, it begins with "=".
func nth(rank any, standings []any) string {
	shared := 0
	for _, s := range standings {
		if s.(map[string]any)["final_rank"] == rank {
			shared++
		}
	}
	name := map[any]string{1.0: "1st", 2.0: "2nd", 3.0: "3rd", 4.0: "4th"}[rank]
	if shared > 1 {
		return "=" + name
	}
	return name
}

// stop cancels the session, and confirms it.
func (p *tab) stop() {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("#session .actions button")].find((b) => b.textContent === "Cancel").click()`))
	p.until(`document.querySelector("dialog.sure")?.open`)
	p.do(chromedp.Click(chromedp.CSS(`dialog.sure [value="yes"]`)))
}

// long is a synthesis that takes a while to stream.
func long() string {
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "Sentence %d of the final answer says what the council found.\n\n", i)
	}
	return strings.TrimSpace(b.String())
}

// writing has a model write a final answer in chunks that take a while.
func writing(m *simllm.Model, text string) {
	inner := m.Reply
	m.ChunkDelay = 20 * time.Millisecond
	m.Reply = func(task simllm.Task) (string, bool) {
		if inner != nil {
			inner(task)
		}
		return text, task.Kind == simllm.Synthesis
	}
}

// paragraphs returns the final answer as it is shown.
func paragraphs(p *tab) string {
	return value[string](p, `[...document.querySelectorAll('`+answer+` p')].map((p) => p.textContent).join("\n\n")`)
}

// readsWhole holds that the final answer becomes long(): the page draws its last piece a moment after it says that the
// answer is complete.
func (p *tab) readsWhole() {
	p.Helper()
	p.until(`document.querySelector('` + answer + `').textContent.includes("Sentence 59 of the final answer says what the council found.")`)
	if got := paragraphs(p); got != long() {
		p.Errorf("the answer reads %q", got)
	}
}

// TestAskAndWatch asks, watches each step as it happens, and reads the result.
func TestAskAndWatch(t *testing.T) {
	t.Parallel()
	models := members()
	release := hold(t, models, simllm.Question, simllm.Review)
	writing(&models[0], long())
	p := open(t, daemon(t, nil, models...), "")
	p.do(chromedp.SendKeys(chromedp.ID("query"), "Should we split"))
	p.press("\r", chromedp.KeyModifiers(chromedp.ModifierShift)) // a new line
	p.ask("our monolith?")
	if got := value[string](p, `document.querySelector("h1.question").textContent`); got != "Should we split\nour monolith?" {
		t.Errorf("the question reads %q", got)
	}

	p.until(seats(answers) + ` === "amber waiting, birch waiting, cedar waiting, dune waiting"`)
	release(simllm.Question, "cedar")
	p.until(seats(answers) + ` === "amber waiting, birch waiting, cedar done, dune waiting"`)
	p.says(".steps", "1 of 4")
	p.says(said, "One of four has answered. Reviews begin when the last one is done.")
	p.until(`document.title === "▸ 1 of 4 · Should we split\nour monolith?".replace("\n", " ")`)
	p.shot("1-answering")
	release(simllm.Question, "amber", "birch", "dune")
	p.until(seats(reviews) + ` === "amber reviewing, birch reviewing, cedar reviewing, dune reviewing"`)
	p.says(`.steps [aria-current="step"]`, "Reviews0 of 4")
	release(simllm.Review, "birch")
	p.until(seats(reviews) + ` === "amber reviewing, birch done, cedar reviewing, dune reviewing"`)
	p.says(said, "One of four has voted. The chairman writes when the last one is done.")
	if value[bool](p, `document.querySelector('`+ranking+`').checkVisibility()`) {
		t.Error("there is a ranking before the ballots are in")
	}
	release(simllm.Review, "amber", "cedar", "dune")
	p.until(`document.querySelectorAll('` + ranking + ` tbody tr').length === 4`)
	p.until(`document.querySelector('` + answer + `[aria-busy="true"]')?.textContent.includes("Sentence 1 ")`)
	if value[bool](p, `document.querySelector('`+answer+`').closest("[aria-live], [role=status], [role=alert]") !== null`) {
		t.Error("a screen reader is told every token")
	}
	p.shot("2-writing")
	p.says(said, "The answer is complete.")
	p.readsWhole()
	p.shot("3-complete")

	session := p.session()
	var want []string
	standings := session["metadata"].(map[string]any)["aggregate_rankings"].([]any)
	for _, s := range standings {
		standing := s.(map[string]any)
		want = append(want, fmt.Sprintf("%s %v %.2f", nth(standing["final_rank"], standings), standing["model"], standing["borda_normalized"]))
	}
	got := value[[]string](p, `[...document.querySelectorAll('`+ranking+` tbody tr')]`+
		`.map((row) => [0, 1, 2].map((i) => row.cells[i].textContent).join(" "))`)
	if !slices.Equal(got, want) {
		t.Errorf("the ranking reads %q, want %q", got, want)
	}

	first := session["stage2"].([]any)[0].(map[string]any)
	p.do(chromedp.Click(chromedp.CSS(judgedPart + " > details > summary")))
	p.do(chromedp.Click(chromedp.CSS(reviews + " summary")))
	p.until(`document.querySelector('` + reviews + ` details[open] tbody tr')`)
	rows := value[[][]string](p, `[...document.querySelector('`+reviews+` details[open] tbody').rows]`+
		`.map((row) => [...row.cells].map((cell) => cell.textContent))`)
	for _, row := range rows {
		seat := first["label_to_model"].(map[string]any)["Response "+row[0]].(map[string]any)
		ballot := first["parsed_ranking"].(map[string]any)
		place := slices.Index(ballot["ranking"].([]any), any("Response "+row[0])) + 1
		if row[1] != seat["model"] || row[2] != nth(float64(place), nil) || row[3] != fmt.Sprint(ballot["scores"].(map[string]any)["Response "+row[0]]) {
			t.Errorf("the slate reads %q, the session has %v and %v", row, seat, ballot)
		}
	}
	p.openAnswer("amber")
	p.says(answers+" [role=tabpanel]:not([hidden])", strings.Fields(session["stage1"].([]any)[0].(map[string]any)["response"].(string))[0])
	p.do(chromedp.Click(chromedp.CSS(audit + " summary")))
	if text := p.text(audit); !strings.Contains(text, "One session cannot prove that there is bias") {
		t.Errorf("the audit reads %q", text)
	}
}

// TestReload reloads in the middle of the reviews and of the answer. The page continues
// where the session is.
func TestReload(t *testing.T) {
	t.Parallel()
	models := members()
	release := hold(t, models, simllm.Review)
	writing(&models[0], long())
	p := open(t, daemon(t, nil, models...), "")
	p.ask("What survives a reload?")
	release(simllm.Review, "dune")
	const half = ` === "amber reviewing, birch reviewing, cedar reviewing, dune done"`
	p.until(seats(reviews) + half)
	p.do(chromedp.Reload())
	p.until(seats(reviews) + half)
	p.until(seats(answers) + ` === "amber done, birch done, cedar done, dune done"`)
	p.says("h1.question", "What survives a reload?")
	p.says("title", "What survives a reload?")
	release(simllm.Review, "amber", "birch", "cedar")
	p.until(`document.querySelector('` + answer + `[aria-busy="true"]')?.textContent.includes("Sentence 1 ")`)
	p.do(chromedp.Reload())
	p.says(said, "The answer is complete.")
	p.readsWhole()
}

// line is a proxy that can lose responses.
type line struct {
	http.Handler

	lose atomic.Bool            // the response to the next POST
	down atomic.Pointer[string] // paths that contain it get no response; nil: all do

	mu    sync.Mutex // guards all below
	first int        // bytes after which the first response with events is cut; 0: none
	cut   func()     // cuts the last one
	since []string   // the Last-Event-ID of each request for events
}

func (l *line) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/events") {
		ctx, cut := context.WithCancel(r.Context())
		defer cut()
		r = r.WithContext(ctx)
		l.mu.Lock()
		l.cut = cut
		l.since = append(l.since, r.Header.Get("Last-Event-ID"))
		if len(l.since) == 1 && l.first > 0 {
			w = &cutWriter{ResponseWriter: w, left: l.first}
		}
		l.mu.Unlock()
	}
	if down := l.down.Load(); down != nil && strings.Contains(r.URL.Path, *down) {
		panic(http.ErrAbortHandler)
	}
	if r.Method == http.MethodPost && l.lose.Swap(false) {
		l.Handler.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	l.Handler.ServeHTTP(w, r)
}

// cutNow cuts the last response with events.
func (l *line) cutNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut()
}

// start puts the line before a daemon, and returns its address.
func (l *line) start(t *testing.T, origin string) string {
	t.Helper()
	target, err := url.Parse(origin)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	l.Handler = proxy
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	return server.URL
}

// cutWriter ends its response, as a connection that breaks does, after some bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *cutWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b[:min(len(b), w.left)])
	w.left -= n
	if err == nil && w.left == 0 {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// TestCutLine cuts the connection, also in the middle of an event. Nothing is lost and
// nothing is repeated.
func TestCutLine(t *testing.T) {
	t.Parallel()
	models := members()
	writing(&models[0], long())
	l := &line{first: 500}
	p := open(t, l.start(t, daemon(t, nil, models...)), "")
	p.ask("What does a cut line lose?")
	p.until(`document.querySelector('` + answer + `[aria-busy="true"]')?.textContent.includes("Sentence 1 ")`)
	l.cutNow()
	p.says(said, "The answer is complete.")
	p.readsWhole()
	if value[bool](p, `[...document.querySelectorAll("#session .notice")].some((n) => n.checkVisibility())`) {
		t.Errorf("the page still shows a notice: %s", p.text("#session"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.since) != 3 || l.since[0] != "" || l.since[2] == "" {
		t.Errorf("the page asked for the events after %q", l.since)
	}
}

// TestLostReply loses the 202 for a question. The page asks again, and it stays one
// session.
func TestLostReply(t *testing.T) {
	t.Parallel()
	l := &line{}
	l.lose.Store(true)
	p := open(t, l.start(t, daemon(t, nil, members()...)), "")
	p.ask("Was I heard?")
	p.says(said, "The answer is complete.")
	list := get[struct{ Sessions []any }](t, p.origin+"/v1/council")
	if len(list.Sessions) != 1 || l.lose.Load() {
		t.Errorf("there are %d sessions", len(list.Sessions))
	}
}

// TestSentAgainByHand holds that a question whose reply was lost, and that the reader sends again, stays one session, also
// after a reload. A question that was changed is another one, and so is the same one that is asked again after an answer.
func TestSentAgainByHand(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool // the replies to all questions
	origin := daemon(t, nil, members()...)
	p := open(t, before(t, origin, func(w http.ResponseWriter, r *http.Request, daemon http.Handler) {
		if lost.Load() && r.Method == http.MethodPost && r.URL.Path == "/v1/council" {
			daemon.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		daemon.ServeHTTP(w, r)
	}), "")
	sessions := func(want int) {
		t.Helper()
		if got := len(get[struct{ Sessions []any }](t, origin+"/v1/council").Sessions); got != want {
			t.Errorf("there are %d sessions, want %d", got, want)
		}
	}
	// send sends the question of a form, and waits for the session, or for the end of all attempts.
	send := func(form, field, question string, lose bool) {
		t.Helper()
		before := value[string](p, `location.hash`)
		p.until(fmt.Sprintf(`document.querySelector("%s")?.checkVisibility() && !document.querySelector("%s .primary").disabled`, field, form))
		lost.Store(lose)
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const f = document.querySelector(%q);
			f.value = %q; f.dispatchEvent(new Event("input", { bubbles: true })); f.form.requestSubmit(); }`, field, question)))
		if lose {
			p.until(fmt.Sprintf(`document.querySelector("%s [role=alert] .notice.bad")`, form))
			return
		}
		p.until(`location.hash !== "` + before + `"`)
		p.says(said, "The answer is complete.")
	}
	const home, query, next, followUp = "#question-form", "#query", "#session form", "#follow-up"
	p.until(`!document.getElementById("models").hidden`)
	send(home, query, "Was I heard?", true)
	send(home, query, "Was I heard?", true)
	p.do(chromedp.Reload())
	p.until(`document.getElementById("query").value === "Was I heard?" && !document.getElementById("models").hidden`)
	send(home, query, "Was I heard?", false)
	sessions(1)
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/"`))
	send(home, query, "Was I heard?", false)
	sessions(2)

	send(next, followUp, "And now?", true)
	sessions(3)
	p.do(chromedp.Reload())
	p.until(`document.getElementById("follow-up")?.value === "And now?"`)
	send(next, followUp, "And now?", false)
	sessions(3)
	p.do(chromedp.NavigateBack())
	p.says("h1.question", "Was I heard?")
	send(next, followUp, "And now?", false)
	sessions(4)

	send(next, followUp, "And then?", true)
	send(next, followUp, "And after that?", false)
	sessions(6)
}

// TestKeyOfAnotherRequest holds that a question whose key stands for another one can be sent again, with another key.
func TestKeyOfAnotherRequest(t *testing.T) {
	t.Parallel()
	var keys []string // of the questions
	var mu sync.Mutex // guards keys
	p := open(t, before(t, daemon(t, nil, members()...), func(w http.ResponseWriter, r *http.Request, daemon http.Handler) {
		if r.Method == http.MethodPost && r.URL.Path == "/v1/council" {
			mu.Lock()
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			first := len(keys) == 1
			mu.Unlock()
			if first {
				w.WriteHeader(http.StatusConflict)
				return
			}
		}
		daemon.ServeHTTP(w, r)
	}), "")
	p.until(`!document.getElementById("models").hidden`)
	p.do(chromedp.SendKeys(chromedp.ID("query"), "Whose key?"))
	p.press("\r")
	p.until(`document.querySelector("#ask-problem .notice")`)
	p.do(chromedp.Click(chromedp.CSS("#question-form .primary")))
	p.says(said, "The answer is complete.")
	mu.Lock()
	defer mu.Unlock()
	if len(keys) != 2 || keys[0] == keys[1] {
		t.Errorf("the keys are %q", keys)
	}
}

// TestDegraded holds that the page says above the answer what is missing and which model
// took over.
func TestDegraded(t *testing.T) {
	t.Parallel()
	broken := []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 401}}
	origin := daemon(t, map[string]string{"CHAIRMAN": "down", "MODELS": "amber,birch,cedar,down"},
		append(members(), simllm.Model{Name: "down", Faults: broken})...)
	p := open(t, origin, "")
	p.ask("Who is missing?")
	p.says(said, "The answer is degraded.")
	notice := p.text("#session .notice.warn")
	if first := "Degraded. One of four members failed, and one of four reviewers gave no ballot. The chairman failed. "; !strings.HasPrefix(notice, first) {
		t.Errorf("the notice does not begin with %q: %q", first, notice)
	}
	p.do(chromedp.Click(chromedp.CSS("#session .notice.warn summary")))
	notice = p.text("#session .notice.warn")
	for _, want := range []string{"Answers, Reviews, and Final answer: down: ", "unauthorized"} {
		if !strings.Contains(notice, want) {
			t.Errorf("%q is not said in %q", want, notice)
		}
	}
	if !value[bool](p, `document.querySelector("#session .notice.warn").getBoundingClientRect().top < `+
		`document.querySelector('`+answer+`').getBoundingClientRect().top`) {
		t.Error("it is not said above the answer")
	}
	p.says(answers+" .seats > :last-child", "failed")
	p.shot("degraded")
}

func TestTooFewAnswers(t *testing.T) {
	t.Parallel()
	broken := []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 401}}
	p := open(t, daemon(t, nil,
		simllm.Model{Name: "amber"}, simllm.Model{Name: "down", Faults: broken}, simllm.Model{Name: "out", Faults: broken}), "")
	p.ask("Is there a quorum?")
	p.says(said, "The session failed.")
	notice := p.text("#session .notice.bad")
	for _, want := range []string{"Too few members answered", "Two members, down and out: unauthorized: "} {
		if !strings.Contains(notice, want) {
			t.Errorf("the failure lacks %q: %q", want, notice)
		}
	}
	if got := value[string](p, seats(answers)); got != "amber done, down failed, out failed" {
		t.Errorf("the members read %q", got)
	}
	if got := value[string](p, seats(reviews)); got != "amber not reached, down not reached, out not reached" {
		t.Errorf("the reviewers read %q", got)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	models := members()
	hold(t, models, simllm.Review)
	p := open(t, daemon(t, nil, models...), "")
	p.ask("Shall we stop?")
	p.until(seats(answers) + ` === "amber done, birch done, cedar done, dune done"`)
	p.stop()
	p.says(said, "The session was cancelled.")
	if status := p.session()["status"]; status != "cancelled" {
		t.Errorf("the session is %v", status)
	}
	if value[bool](p, `document.querySelector("#session button").checkVisibility()`) {
		t.Error("it can be cancelled again")
	}
}

// TestSessions holds that the list has all sessions of the daemon, also those of another
// browser, and opens them.
func TestSessions(t *testing.T) {
	t.Parallel()
	models := members()
	release := hold(t, models, simllm.Review)
	p := open(t, daemon(t, nil, models...), "")
	p.ask("Which comes first?")
	p.until(seats(answers) + ` === "amber done, birch done, cedar done, dune done"`)
	p.do(chromedp.NavigateBack())
	p.until(`document.querySelectorAll("#sessions li").length === 1`)
	if text := p.text("#sessions li"); !strings.Contains(text, "Which comes first?") || !strings.Contains(text, "running") {
		t.Errorf("the list reads %q", text)
	}
	p.do(chromedp.Click(chromedp.CSS("#sessions a")))
	p.until(seats(reviews) + ` === "amber reviewing, birch reviewing, cedar reviewing, dune reviewing"`)
	release(simllm.Review, "amber", "birch", "cedar", "dune")
	p.says(said, "The answer is complete.")

	other := open(t, p.origin, "")
	other.until(`document.querySelectorAll("#sessions li").length === 1`)
	other.says("#sessions li", "complete")
	other.do(chromedp.Click(chromedp.CSS("#sessions a")))
	other.says(said, "The answer is complete.")
	other.says("h1.question", "Which comes first?")
	other.says("title", "Which comes first?")
	other.do(chromedp.Navigate(p.origin + "/#/session/none-such"))
	other.says("#session .notice.bad", "there is no session")
}

// TestDaemonIsGone holds that the page says when a session goes on although the daemon
// does not answer, and that it shows the session and the list afterwards, without a
// reload.
func TestDaemonIsGone(t *testing.T) {
	t.Parallel()
	models := members()
	release := hold(t, models, simllm.Review)
	l := &line{}
	p := open(t, l.start(t, daemon(t, nil, models...)), "")
	p.ask("Are you still there?")
	p.until(seats(answers) + ` === "amber done, birch done, cedar done, dune done"`)
	l.down.Store(new("/v1/"))
	l.cutNow()
	p.until(firstNotice + `.startsWith("` + lostLine + `Trying again")`)
	release(simllm.Review, "amber", "birch", "cedar", "dune")
	l.down.Store(nil)
	p.says(said, "The answer is complete.")
	if text := value[string](p, firstNotice); text != "" {
		t.Errorf("the page still says %q", text)
	}
	l.down.Store(new("/v1/"))
	p.do(chromedp.Click(chromedp.CSS(`nav a[href="#/"]`)))
	p.says("#sessions", "The daemon does not answer. Trying again in ")
	l.down.Store(nil)
	p.says("#sessions a", "Are you still there?")
}

// TestCancelAfterTheEnd holds that a session whose end the page has not heard of is not
// deleted by the button that cancels it.
func TestCancelAfterTheEnd(t *testing.T) {
	t.Parallel()
	models := members()
	release := hold(t, models, simllm.Review)
	l := &line{}
	origin := daemon(t, nil, models...)
	p := open(t, l.start(t, origin), "")
	p.ask("Is it over?")
	p.until(seats(answers) + ` === "amber done, birch done, cedar done, dune done"`)
	l.down.Store(new("/events"))
	l.cutNow()
	release(simllm.Review, "amber", "birch", "cedar", "dune")
	for p.session()["status"] == "running" {
		<-time.After(10 * time.Millisecond)
	}
	p.stop()
	p.until(`performance.getEntriesByType("resource").some((r) => /council\/[^/]+$/.test(r.name) && r.responseEnd > 0)`)
	l.down.Store(nil)
	p.says(said, "The answer is complete.")
}

// TestRefusedQuestion holds that a refused question stays in its field, with the reason
// under it.
func TestRefusedQuestion(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, map[string]string{"MAX_QUERY_BYTES": "10"}, members()...), "")
	p.do(chromedp.SendKeys(chromedp.ID("query"), "This is more than ten bytes"))
	p.press("\r")
	p.says("#query-problem", "10")
	p.until(`document.getElementById("query").getAttribute("aria-invalid") === "true"`)
	// The driver types the line break of Enter even though the page handles the key.
	if kept := value[string](p, `document.getElementById("query").value.trim()`); kept != "This is more than ten bytes" {
		t.Errorf("the field holds %q", kept)
	}
}

// TestToken holds that the page asks for a token where one is needed, and again after a
// wrong one. It keeps the token for the tab only, and out of the address.
func TestToken(t *testing.T) {
	t.Parallel()
	const token = "a-token-of-sixteen-and-more"
	p := open(t, daemon(t, map[string]string{"API_TOKENS": token}, members()...), "")
	p.until(`document.getElementById("token").open`)
	p.shot("token")
	p.press("a-wrong-token-of-some-length\r")
	p.says("#token-refused", "That token was refused.")
	p.until(`document.getElementById("token").open && document.activeElement.id === "token-value"`)
	p.press(token + "\r")
	p.says("#sessions", "No sessions yet.")
	p.ask("Who am I?")
	p.says(said, "The answer is complete.")
	if address := value[string](p, `location.href + document.cookie + JSON.stringify(localStorage)`); strings.Contains(address, token) {
		t.Errorf("the token is in %s", address)
	}
	p.do(chromedp.Reload())
	p.says(said, "The answer is complete.")

	second := newTab(p.ctx, t, p.origin) // of the same browser, with the same storage
	second.do(chromedp.Navigate(p.origin + "/"))
	second.until(`document.getElementById("token").open`)
	second.press("\x1b")
	second.says("#sessions", "A valid token is needed")
}

// TestTokenOfAList holds that the page asks for a token once where the token of a list that is kept up to date is refused, and
// that the list goes on with the next one.
func TestTokenOfAList(t *testing.T) {
	t.Parallel()
	const token = "a-token-of-sixteen-and-more"
	models := members()
	release := hold(t, models, simllm.Question)
	var asked atomic.Int32 // for the list
	origin := daemon(t, map[string]string{"API_TOKENS": token}, models...)
	origin = before(t, origin, func(w http.ResponseWriter, r *http.Request, daemon http.Handler) {
		if r.URL.Path == "/v1/council" && r.Method == http.MethodGet {
			asked.Add(1)
		}
		daemon.ServeHTTP(w, r)
	})
	p := open(t, origin, "")
	p.until(`document.getElementById("token").open`)
	p.press(token + "\r")
	p.until(`!document.getElementById("models").hidden`)
	p.ask("Who am I?")
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/"`))
	p.until(`document.querySelector("#sessions li")`)
	p.do(chromedp.Evaluate[chromedp.Void](`sessionStorage.setItem("token", "another-token-that-is-wrong")`))
	for refused := asked.Load() + 2; asked.Load() < refused; {
		<-time.After(10 * time.Millisecond)
	}
	if value[bool](p, `document.getElementById("token").open`) {
		t.Error("the list asks for a token by itself")
	}
	p.do(chromedp.Evaluate[chromedp.Void](`sessionStorage.setItem("token", "` + token + `")`))
	release(simllm.Question, "amber", "birch", "cedar", "dune")
	p.says("#sessions li", "complete")
}

// TestNotNow holds that the page asks for a token once when it is opened, and not again after "Not now".
func TestNotNow(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, map[string]string{"API_TOKENS": "a-token-of-sixteen-and-more"}, members()...), "")
	p.until(`document.getElementById("token").open`)
	p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("token").showModal = () => { globalThis.again = true; }`))
	p.do(chromedp.Click(chromedp.ID("token-cancel")))
	p.says("#sessions", "A valid token is needed")
	p.until(`performance.getEntriesByType("resource").some((r) => r.name.endsWith("/v1/councils") && r.responseEnd > 0)`)
	<-time.After(time.Second)
	if value[bool](p, `globalThis.again === true`) {
		t.Error("the page asks again")
	}
}

// TestKeyboard holds that everything can be done without a mouse, in the order of the
// page.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, nil, members()...), "")
	p.until(`!document.getElementById("ask").hidden`)
	focused := func() string {
		return value[string](p, `(document.activeElement.id || document.activeElement.textContent).trim()`)
	}
	tabTo := func(want ...string) {
		t.Helper()
		for _, w := range want {
			p.press("\t")
			if got := focused(); got != w {
				t.Fatalf("the focus is on %q, not on %q", got, w)
			}
		}
	}
	tabTo("Skip to the content", "councild", "Ask", "History", "Bias report", "Leaderboard")
	p.do(chromedp.Reload())
	p.until(`!document.getElementById("ask").hidden`)
	tabTo("Skip to the content")
	p.press("\r")
	if got := focused(); got != "main" {
		t.Fatalf("the link leads to %q", got)
	}
	tabTo("query")
	p.press("Is there a keyboard?")
	p.until(`!document.getElementById("models").hidden`)
	tabTo("Ask", "Options")
	p.press("\r")
	for range 4 { // the members
		p.press("\t")
	}
	tabTo("chairman", "max_cost_usd", "category")
	p.press("m") // math
	tabTo("language")
	p.press("\r") // as in every form
	p.says(said, "The answer is complete.")
	if got := focused(); got != "Is there a keyboard?" {
		t.Errorf("the focus is on %q, not on the question", got)
	}
	p.until(seats(answers) + ` === "amber done, birch done, cedar done, dune done"`)
	for range 30 { // up to the answers, of which the first is open
		p.press("\t")
		if value[bool](p, `document.activeElement.matches('`+answers+` [role=tab]')`) {
			break
		}
	}
	for i, key := range []string{"", kb.ArrowRight, kb.End, kb.ArrowRight, kb.ArrowLeft, kb.Home} {
		if key != "" {
			p.press(key)
		}
		p.until(fmt.Sprintf(`document.activeElement === document.querySelectorAll('%s [role=tab]')[%d]`, answers, []int{0, 1, 3, 0, 3, 0}[i]))
		p.until(`document.activeElement.ariaSelected === "true" && document.getElementById(document.activeElement.getAttribute("aria-controls")).checkVisibility()`)
	}
}

// TestReducedMotion holds that nothing moves for readers who prefer that.
func TestReducedMotion(t *testing.T) {
	t.Parallel()
	models := members()
	hold(t, models, simllm.Question)
	p := open(t, daemon(t, nil, models...), "")
	p.ask("Does it move?")
	p.until(seats(answers) + ` === "amber waiting, birch waiting, cedar waiting, dune waiting"`)
	const animation = `getComputedStyle(document.querySelector(".state.waiting"), "::before").animationName`
	if got := value[string](p, animation); got != "breathe" {
		t.Errorf("the animation is %q", got)
	}
	p.prefer("", "prefers-reduced-motion", "reduce")
	if got := value[string](p, animation); got != "none" {
		t.Errorf("with reduced motion the animation is %q", got)
	}
}

// show opens the view of a section, and waits for its table or list.
func (p *tab) show(view string) {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/` + strings.TrimPrefix(view, "ask") + `"`))
	p.until(`!document.getElementById("` + view + `").hidden`)
	p.until(`document.querySelector("#` + view + ` :is(table, .sessions li)")`)
}

// TestPhone holds that nothing is wider than a phone. Tables scroll by themselves.
func TestPhone(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, map[string]string{"BIAS_STORE": simulated(t)}, members()...), "")
	p.look(360, 740, "light")
	p.ask("Does it fit? " + strings.Repeat("Averylongwordwithoutanyspace", 10))
	p.says(said, "The answer is complete.")
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => { d.open = true; })`))
	for _, view := range []string{"session", "ask", "report", "leaderboard"} {
		if view != "session" {
			p.show(view)
		}
		if width := value[int](p, `document.scrollingElement.scrollWidth`); width > 360 {
			t.Errorf("%s is %d pixels wide: %q", view, width, value[[]string](p, `[...document.querySelectorAll("main *")]
				.filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > 361 && !e.closest(".scroll")).map((e) => e.outerHTML.slice(0, 100)).slice(0, 5)`))
		}
		p.shot(view)
	}
}

// TestHostileText holds that texts of models stay text wherever they are shown.
// An address that names nothing is said to, also where every object has a property of that name. A letter with 100,000 marks does not
// hold the browser up.
func TestAddressesAndMarks(t *testing.T) {
	t.Parallel()
	marks := "a" + strings.Repeat("\u0301", 100_000)
	models := members()
	for i := range models {
		models[i].Reply = func(task simllm.Task) (string, bool) { return marks, task.Kind == simllm.Question }
	}
	p := open(t, daemon(t, nil, models...), "")
	for _, name := range []string{"constructor", "__proto__", "toString", "nothing"} {
		p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/` + name + `"`))
		p.until(`document.querySelector("#history h1")?.textContent === "Not found" && document.title.startsWith("Not found")`)
	}
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/"`))
	p.ask("x")
	p.says(said, "The answer is complete.")
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => { d.open = true; })`))
	if n := value[int](p, `Math.max(...(document.body.textContent.match(/\p{M}+/gu) ?? [""]).map((run) => run.length))`); n < 1 || n > 32 {
		t.Errorf("a run of %d marks is shown", n)
	}
}

func TestHostileText(t *testing.T) {
	t.Parallel()
	const line = `<script>window.harmed = 1</script><img src=x onerror="window.harmed = 1"><svg onload="window.harmed = 1"></svg>`
	const hostile = line + "\n\n" +
		`**<b onmouseover="window.harmed = 1">bold</b>** [a link](javascript:window.harmed=1) ` + "`<i>code</i>`" +
		"\n\n```<u>\n</code></pre><script>window.harmed = 1</script>\n```\n\n# <h1>x\n- <li>y\n"
	models := members()
	for i := range models {
		models[i].Reply = func(task simllm.Task) (string, bool) {
			if task.Kind != simllm.Review {
				return hostile, true
			}
			var labels []string
			for _, a := range task.Answers {
				labels = append(labels, fmt.Sprintf("%q", a.Label))
			}
			return hostile + `{"ranking": [` + strings.Join(labels, ",") + `], "reason": "<script>window.harmed = 1</script>"}`, true
		}
	}
	p := open(t, daemon(t, nil, models...), "")
	p.ask(line)
	p.says(said, "The answer is complete.")
	p.until(`document.querySelector('` + answer + `').textContent.includes("<script>window.harmed = 1</script>")`)
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => { d.open = true; })`))
	if got := value[string](p, `document.querySelector("h1.question").textContent`); got != line {
		t.Errorf("the question reads %q", got)
	}
	for _, list := range []string{answers, reviews} {
		n := value[int](p, `[...document.querySelectorAll('`+list+` :is(.seats details, [role=tabpanel] > .prose)')]`+
			`.filter((d) => d.textContent.includes("<img src=x onerror=")).length`)
		if n != 4 {
			t.Errorf("%d of 4 texts are shown as written: %s", n, p.text(list))
		}
	}
	const elements = "script, img, svg:not(.bar), b, i, u, [onmouseover], [onerror], [onload], a[href^=javascript]"
	found := value[[]string](p, `[...document.querySelectorAll("main :is(`+elements+`)")].map((n) => n.outerHTML)`)
	if len(found) > 0 {
		t.Errorf("texts became elements: %q", found)
	}
	if value[bool](p, `"harmed" in window`) {
		t.Error("a text was run")
	}
	p.shot("hostile")
}

// TestPolicy holds that the policy refuses what a mistake in the page would let in, and
// that the tests notice such an attempt.
func TestPolicy(t *testing.T) {
	t.Parallel()
	origin := daemon(t, nil, members()...)
	elsewhere, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = elsewhere.Close() })
	for name, attack := range map[string]string{
		"inline script": `const s = document.createElement("script");
			try { s.text = "window.harmed = 1"; } catch {} document.body.append(s);`,
		"inline style": `document.body.setAttribute("style", "color: red");`,
		"markup":       `try { document.body.innerHTML = "<p>x</p>"; } catch {}`,
		"image":        `new Image().src = "http://` + elsewhere.Addr().String() + `/x.png";`,
		"call":         `fetch("http://` + elsewhere.Addr().String() + `/").catch(() => {});`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, origin, "")
			p.until(`!document.getElementById("ask").hidden`)
			const listen = `addEventListener("securitypolicyviolation", () => { window.refused = true; });`
			p.do(chromedp.Evaluate[chromedp.Void](`{ ` + listen + attack + ` }`))
			p.until(`window.refused`)
			if value[bool](p, `"harmed" in window || document.body.style.color === "red" || document.body.children.length < 3`) {
				t.Error("the attack had an effect")
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.faults) == 0 {
				t.Error("the test did not notice")
			}
			p.faults = nil
		})
	}
}
