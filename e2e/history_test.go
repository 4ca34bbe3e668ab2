package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
)

// TestHistory holds that the list shows the question, the time and the cost of each
// session, the newest first, and that one can be deleted after a question.
func TestHistory(t *testing.T) {
	t.Parallel()
	models := members()
	for i := range models {
		models[i].Price = simllm.Price{Input: 1, Output: 10}
	}
	p := open(t, daemon(t, nil, models...), "")
	p.says("#sessions", "No sessions yet.")
	const hostile = `Is <b id="harm">this</b> &amp; that "safe"?`
	for _, question := range []string{hostile, "Which is newer?"} {
		p.ask(question)
		p.says(said, "The answer is complete.")
		p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/"`))
	}
	other := open(t, p.origin, "") // of another browser, which asked nothing
	other.until(`document.querySelectorAll("#sessions li").length === 2`)
	for _, tab := range []*tab{p, other} {
		tab.until(`document.querySelectorAll("#sessions li").length === 2`)
		list := get[struct {
			Sessions []struct {
				Query, Created string
				Cost           float64 `json:"cost_usd"`
			}
		}](t, p.origin+"/v1/council").Sessions
		for i, question := range []string{"Which is newer?", hostile} {
			row := fmt.Sprintf(`document.querySelectorAll("#sessions li")[%d]`, i)
			if got := value[string](tab, row+`.querySelector("a").textContent`); got != question || list[i].Query != question {
				t.Errorf("question %d reads %q, and %q in the list of the daemon", i, got, list[i].Query)
			}
			if got := value[string](tab, row+`.querySelector("time").dateTime`); got != list[i].Created {
				t.Errorf("question %d was asked at %s, not at %s", i, got, list[i].Created)
			}
			text := value[string](tab, row+`.textContent`)
			if want := " · " + spend.FromFloat(list[i].Cost).Dollars(); list[i].Cost <= 0 || !strings.Contains(text, want) {
				t.Errorf("question %d reads %q, want the cost %q", i, text, want)
			}
		}
	}
	p.shot("two")

	press := func(text string) {
		t.Helper()
		p.until(`document.getElementById("delete").open`)
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
			`[...document.querySelectorAll("#delete button")].find((b) => b.textContent === %q).click()`, text)))
		p.until(`!document.getElementById("delete").open`)
	}
	choose := func(row, action string) {
		t.Helper()
		p.do(chromedp.Click(chromedp.CSS(row + " .menu summary")))
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
			`[...document.querySelectorAll("%s .menu button")].find((b) => b.textContent === %q).click()`, row, action)))
		p.until(`document.getElementById("delete").open`)
	}
	choose("#sessions > ul > li:last-child", "Delete")
	p.says("#delete-question", hostile)
	p.shot("delete")
	press("Keep it")
	choose("#sessions > ul > li:last-child", "Delete")
	p.press("\x1b")
	p.until(`!document.getElementById("delete").open`)
	p.do(chromedp.Reload())
	p.until(`document.querySelectorAll("#sessions li").length === 2`)
	choose("#sessions > ul > li:last-child", "Delete")
	press("Delete it")
	p.until(`document.querySelectorAll("#sessions li").length === 1`)
	p.until(`document.activeElement.id === "sessions-title"`)
	p.says("#sessions a", "Which is newer?")
	other.do(chromedp.Click(chromedp.CSS("#sessions li:last-child a"))) // its list is old
	other.says("#session .notice.bad", "there is no session")
	choose("#sessions li", "Delete")
	press("Delete it")
	p.says("#sessions", "No sessions yet.")
	if left := get[struct{ Sessions []any }](t, p.origin+"/v1/council").Sessions; len(left) != 0 {
		t.Errorf("the daemon still has %v", left)
	}
}

// TestSearch holds that the history is searched by text and status, shows older sessions
// on request, and says when nothing matches.
func TestSearch(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, nil, members()...), "")
	p.says("#sessions", "No sessions yet.")
	for i := range 27 { // two more than a page
		post(t, p.origin, fmt.Sprintf(`{"query": "Number %d?"}`, i))
	}
	post(t, p.origin, `{"query": "About ÉLAN & more?"}`)
	p.do(chromedp.Click(chromedp.CSS(`nav a[href="#/history"]`)))
	const rows = `document.querySelectorAll("#history li").length`
	p.until(rows + ` === 25`)
	p.until(`document.activeElement.textContent === "History"`)
	p.do(chromedp.Click(chromedp.CSS("#history .more")))
	p.until(rows + ` === 28 && !document.querySelector("#history .more").checkVisibility()`)
	p.until(`document.activeElement.textContent === "Number 2?"`)
	p.do(chromedp.Click(chromedp.ID("search")))
	p.press("élan &")
	p.until(rows + ` === 1`)
	p.says("#history li a", "About ÉLAN & more?")
	p.do(chromedp.Click(chromedp.CSS("#history li a")))
	p.says(said, "The answer is complete.")
	p.do(chromedp.NavigateBack())
	p.until(rows + ` === 1`)
	if got := value[string](p, `document.getElementById("search").value`); got != "élan &" {
		t.Errorf("the search reads %q", got)
	}
	p.do(chromedp.SendKeys(chromedp.ID("status"), "failed"))
	p.says("#history .found", "No session matches this search.")
}

// converse asks a question and a follow-up question, and returns the ids of both sessions.
func converse(t *testing.T, origin, question, further string) (first, second string) {
	t.Helper()
	type sessions struct {
		Sessions []struct {
			ID string `json:"session_id"`
		}
	}
	post(t, origin, fmt.Sprintf(`{"query": %q}`, question))
	first = get[sessions](t, origin+"/v1/council").Sessions[0].ID
	body, err := json.Marshal(map[string]any{"messages": []council.Message{
		{Role: council.RoleUser, Content: question},
		{Role: council.RoleAssistant, Content: get[council.Session](t, origin+"/v1/council/"+first).Answer},
		{Role: council.RoleUser, Content: further},
	}})
	if err != nil {
		t.Fatal(err)
	}
	post(t, origin, string(body))
	return first, get[sessions](t, origin+"/v1/council").Sessions[0].ID
}

// TestConversations holds that a conversation is one row whose turns unfold, that answers are searched, and that a row's
// menu works with the keyboard: it renames a conversation, and deletes all of it.
func TestConversations(t *testing.T) {
	t.Parallel()
	models := members()
	for i := range models {
		models[i].Price = simllm.Price{Input: 1, Output: 10}
		models[i].Reply = func(task simllm.Task) (string, bool) {
			return "## **Yes**, one is.\n\n" + strings.Repeat("So it is. ", 20<<10) + "A needle ends it.",
				task.Kind == simllm.Synthesis && strings.HasSuffix(task.Question, "enough?")
		}
	}
	p := open(t, daemon(t, nil, models...), "#/history")
	p.says("#history .found", "No sessions yet. Ask a question")
	first, second := converse(t, p.origin, "Is one file enough?", "What of two?")
	post(t, p.origin, `{"query": "Another matter?"}`)
	p.do(chromedp.Reload())
	const rows = `document.querySelectorAll("#history .sessions > li").length`
	const row = `document.querySelector("#history .sessions > li:last-child")`
	p.until(rows + ` === 2`)
	p.says("#history .sessions > li:last-child > a", "Is one file enough?")
	if got := value[string](p, row+`.querySelector("a").hash`); got != "#/session/"+second {
		t.Errorf("the row leads to %s, not to the newest turn", got)
	}
	cost := 0.0
	for _, id := range []string{first, second} {
		cost += *get[council.Session](t, p.origin+"/v1/council/"+id).Metadata.Usage.CostUSD
	}
	if got, want := value[string](p, row+`.querySelector(".hint").textContent`), fmt.Sprintf(" · $%.2f", cost); !strings.Contains(got, want[:len(want)-1]) {
		t.Errorf("the conversation cost %q, not %q", got, want)
	}
	if value[bool](p, row+`.querySelector(".turns a").checkVisibility()`) {
		t.Error("the turns are shown at once")
	}
	p.do(chromedp.Evaluate[chromedp.Void](row + `.querySelector(".turns summary").focus()`))
	p.press("\r")
	p.until(row + `.querySelector(".turns a").checkVisibility()`)
	if got := value[string](p, `[...`+row+`.querySelectorAll(".turns a")].map((a) => a.textContent).join()`); got != "Is one file enough?,What of two?" {
		t.Errorf("the turns are %q", got)
	}
	p.shot("turns")

	p.do(chromedp.Click(chromedp.ID("search")))
	p.press("A NEEDLE")
	p.until(rows + ` === 1`)
	p.press("s")
	p.says("#history .found", "No session matches this search.")
	p.do(chromedp.Click(chromedp.CSS("#history .found button")))
	p.until(rows + ` === 2 && document.activeElement.id === "search"`)
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#history .sessions").dataset.before = ""`))
	p.do(chromedp.SendKeys(chromedp.ID("days"), "past 24"))
	p.until(`document.querySelector("#history .sessions:not([data-before])") && ` + rows + ` === 2 && document.getElementById("days").value === "1"`)
	if value[bool](p, `document.getElementById("council-name").checkVisibility()`) {
		t.Error("there is a choice of one council")
	}

	menu := func(tabs int) {
		t.Helper()
		p.do(chromedp.Evaluate[chromedp.Void](row + `.querySelector(".menu summary").focus()`))
		p.press("\r")
		p.until(row + `.querySelector(".menu").open`)
		for range tabs {
			p.press("\t")
		}
	}
	menu(1)
	p.shot("menu")
	p.press("\x1b")
	p.until(`!` + row + `.querySelector(".menu").open && document.activeElement.getAttribute("aria-label") === "Actions for Is one file enough?"`)
	menu(1)
	p.press("\r")
	p.until(`document.activeElement.id === "asked-name"`)
	p.shot("rename")
	p.press(`<b>One</b> file`)
	p.press("\r")
	p.says("#history .sessions > li:last-child > a", "<b>One</b> file")
	p.do(chromedp.Reload())
	p.says("#history .sessions > li:last-child > a", "<b>One</b> file")

	menu(2)
	p.press("\r")
	p.says("#delete-title", "Delete this conversation of 2 turns?")
	p.do(chromedp.Click(chromedp.CSS(`#delete button[value="delete"]`)))
	p.until(rows + ` === 1`)
	if left := get[struct{ Sessions []any }](t, p.origin+"/v1/council").Sessions; len(left) != 1 {
		t.Errorf("the daemon still has %d sessions", len(left))
	}
}

// TestCouncilOfTheHistory holds that the history shows the council of a session, and that the reader comes back to the
// sessions of one council.
func TestCouncilOfTheHistory(t *testing.T) {
	t.Parallel()
	p := open(t, twoCouncils(t), "")
	for _, council := range []string{"deep", "fast"} {
		post(t, p.origin, fmt.Sprintf(`{"query": "Of %s?", "council": %[1]q}`, council))
	}
	p.show("history")
	p.until(`document.getElementById("council-name").checkVisibility()`)
	p.do(chromedp.SendKeys(chromedp.ID("council-name"), "fast"))
	const one = `document.querySelectorAll("#history li").length === 1`
	p.until(one)
	p.says("#history li .hint", " · fast · ")
	p.do(chromedp.Click(chromedp.CSS("#history li a")))
	p.says(said, "The answer is complete.")
	p.do(chromedp.NavigateBack())
	p.until(one + ` && document.getElementById("council-name").value === "fast"`)
}

// TestCancelAsks holds that the list asks before it cancels a session, and says what is spent.
func TestCancelAsks(t *testing.T) {
	t.Parallel()
	models := members()
	for i := range models {
		models[i].Price = simllm.Price{Input: 1, Output: 10}
	}
	hold(t, models, simllm.Review)
	p := open(t, daemon(t, nil, models...), "")
	p.ask("Is it dear?")
	p.until(seats(answers) + ` === "amber done, birch done, cedar done, dune done"`)
	p.show("history")
	press := func(text string) {
		t.Helper()
		p.do(chromedp.Click(chromedp.CSS("#history .menu summary")))
		p.do(chromedp.Click(chromedp.CSS("#history .menu button")))
		p.says("dialog[open]", "Stop now?")
		if got := p.text("dialog[open] p"); !strings.HasPrefix(got, "What is spent stays spent: $0.") {
			t.Errorf("the page says %q", got)
		}
		p.shot("stop")
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
			`[...document.querySelectorAll("dialog[open] button")].find((b) => b.textContent === %q).click()`, text)))
		p.until(`!document.querySelector("dialog[open]")`)
	}
	press("Keep running")
	p.until(`document.querySelector("#history .state.running")`)
	press("Stop")
	p.until(`document.querySelector("#history .state.cancelled")`)
}

// TestElapsed holds that the history counts the time of a session that runs, and shows
// its end without a reload.
func TestElapsed(t *testing.T) {
	t.Parallel()
	models := members()
	release := hold(t, models, simllm.Question)
	p := open(t, daemon(t, nil, models...), "")
	p.ask("How long does it take?")
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/history"`))
	p.until(`/running · .+ · for [1-9]\d* s$/.test(document.querySelector("#history li .hint")?.textContent)`)
	if got := value[string](p, `document.querySelector("#history li .menu div").textContent`); got != "Cancel" {
		t.Errorf("a session that runs has the actions %q", got)
	}
	release(simllm.Question, "amber", "birch", "cedar", "dune")
	p.until(`/complete · .+ · \d+\.\d s · cost unknown$/.test(document.querySelector("#history li .hint").textContent)`)
	if got := value[string](p, `document.querySelector("#history li .menu div").textContent`); got != "RenameDelete" {
		t.Errorf("a session that has ended has the actions %q", got)
	}
}

// TestEndOutsideTheList holds that a session that is shown as running also ends on the page when it is in the list no
// longer: because the list is of those that run, because others are newer, or because it was deleted.
func TestEndOutsideTheList(t *testing.T) {
	t.Parallel()
	models := members()
	wait := make(chan struct{})
	for i := range models {
		models[i].Price = simllm.Price{Input: 1, Output: 10}
		models[i].Reply = func(task simllm.Task) (string, bool) {
			if task.Kind == simllm.Question && strings.Contains(task.Question, "held") {
				<-wait
			}
			return "", false
		}
	}
	p := open(t, daemon(t, nil, models...), "")
	p.ask("Is this one held?")
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/"`))
	p.until(`document.querySelector("#sessions li .state.running")`)
	for range 5 {
		post(t, p.origin, `{"query": "And another?"}`)
	}
	without := before(t, p.origin, func(w http.ResponseWriter, r *http.Request, daemon http.Handler) {
		if strings.HasPrefix(r.URL.Path, "/v1/council/") { // a daemon whose sessions are deleted once they have ended
			http.NotFound(w, r)
			return
		}
		daemon.ServeHTTP(w, r)
	})
	filtered, deleted := open(t, p.origin, "#/history"), open(t, without, "#/history")
	for _, tab := range []*tab{filtered, deleted} {
		tab.until(`document.querySelectorAll("#history li").length === 6`)
		tab.do(chromedp.SendKeys(chromedp.ID("status"), "running"))
		tab.until(`document.querySelectorAll("#history li").length === 1`)
	}
	close(wait)
	for view, tab := range map[string]*tab{"sessions": p, "history": filtered} {
		tab.until(`/complete · .+ · \d+\.\d s · \$\d/.test(document.querySelector("#` + view + ` li .hint").textContent)`)
		tab.until(`document.querySelector("#` + view + ` li .menu div").textContent === "RenameDelete"`)
	}
	deleted.until(`document.querySelectorAll("#history li").length === 0`)
}

// TestAway holds that every view says that the daemon does not answer, with a countdown,
// and shows what it has when the daemon is back.
func TestAway(t *testing.T) {
	t.Parallel()
	l := &line{}
	p := open(t, l.start(t, daemon(t, map[string]string{"BIAS_STORE": simulated(t)}, members()...)), "")
	p.ask("Are you away?")
	p.says(said, "The answer is complete.")
	const countdown = `document.querySelector("main > section:not([hidden]) [role=alert] [aria-hidden=true]")?.textContent`
	for view, shown := range map[string]string{
		"": "#sessions li", "history": "#history li", "report": "#report table", "leaderboard": "#leaderboard table",
	} {
		l.down.Store(new("/v1/"))
		p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/` + view + `"`))
		p.until(`/The daemon does not answer. Trying again in \d+ s\./.test(document.querySelector("main > section:not([hidden])").textContent)`)
		if view == "report" {
			p.until(countdown + `.includes("in 2 s")`)
			p.until(countdown + `.includes("in 1 s")`)
		}
		l.down.Store(nil)
		p.until(`document.querySelector("` + shown + `")`)
		if value[bool](p, `document.querySelector("main > section:not([hidden])").textContent.includes("does not answer")`) {
			t.Errorf("%s still says that the daemon does not answer", view)
		}
	}
}

// TestRefusals holds that the page tries again where a proxy or the daemon says that the daemon cannot answer now, with
// the reason that the daemon gave, and that a defect of the daemon is shown at once, with what finds it in the log.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]struct {
		status        int
		detail, shown string
		again         bool
	}{
		"busy":    {http.StatusServiceUnavailable, "too many reports", "cannot answer now: too many reports. Trying again in ", true},
		"proxy":   {http.StatusBadGateway, "", "The daemon does not answer. Trying again in ", true},
		"slow":    {http.StatusGatewayTimeout, "", "The daemon does not answer. Trying again in ", true},
		"defect":  {http.StatusInternalServerError, "the records cannot be read", "A defect: the records cannot be readRequest R1", false},
		"unknown": {http.StatusNotImplemented, "not here", "A defect: not hereRequest R1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			var healthy atomic.Bool
			origin := before(t, daemon(t, map[string]string{"BIAS_STORE": simulated(t)}, members()...),
				func(w http.ResponseWriter, r *http.Request, daemon http.Handler) {
					if r.URL.Path != "/v1/bias-report" || healthy.Load() {
						daemon.ServeHTTP(w, r)
						return
					}
					asked.Add(1)
					w.Header().Set("Content-Type", "application/problem+json")
					w.WriteHeader(refusal.status)
					if refusal.detail != "" {
						_, _ = fmt.Fprintf(w, `{"title": "A defect", "detail": %q, "request_id": "R1"}`, refusal.detail)
					}
				})
			p := open(t, origin, "#/report")
			p.says("#report", refusal.shown)
			if refusal.again {
				for asked.Load() < 2 {
					<-time.After(10 * time.Millisecond)
				}
				healthy.Store(true)
				p.until(`document.querySelector("#report table")`)
				return
			}
			<-time.After(2 * time.Second) // longer than the page waits before it tries again
			if n := asked.Load(); n != 1 {
				t.Errorf("the page asked %d times", n)
			}
		})
	}
}

// post asks a question, and waits for its answer.
func post(t *testing.T, origin, request string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+"/v1/council", strings.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the daemon answered %s", resp.Status)
	}
}
