package e2e

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
)

// process is a councild that is killed and started again. Its models wait before their
// reviews, and amber writes the final answer.
type process struct {
	*councild
	asked   <-chan simllm.Task // each call of a model
	release func(simllm.TaskKind, ...string)
}

// startProcess starts a councild whose models are held.
func startProcess(t *testing.T, env map[string]string) *process {
	t.Helper()
	models := members()
	release := hold(t, models, simllm.Review)
	asked := make(chan simllm.Task, 100) // more than the calls of a test
	for i := range models {
		inner := models[i].Reply
		models[i].Reply = func(task simllm.Task) (string, bool) {
			asked <- task
			return inner(task)
		}
	}
	writing(&models[0], long())
	p := &process{councild: newCouncild(t, settings(t, env, models)), asked: asked, release: release}
	if err := p.councild.start(); err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "LLM_COUNCIL_ADDR="+strings.TrimPrefix(p.url, "http://"))
	return p
}

// kill kills the process, and waits until it is gone.
func (p *process) kill() {
	p.Helper()
	if code := p.end(syscall.SIGKILL); code != -1 {
		p.Errorf("the daemon had exited with %d", code)
	}
}

// start starts the process again on the same address. If somebody has taken the address
// meanwhile, it tries again.
func (p *process) start() {
	p.Helper()
	for tries := 1; ; tries++ {
		err := p.councild.start()
		if err == nil {
			return
		}
		if tries == 20 || !strings.Contains(err.Error(), "address already in use") {
			p.Fatal(err)
		}
	}
}

// releaseHalf waits until all models are asked for their reviews, and has amber and
// birch answer.
func (p *process) releaseHalf() {
	p.Helper()
	for reviewers := 0; reviewers < 4; {
		if task := <-p.asked; task.Kind == simllm.Review {
			reviewers++
		}
	}
	p.release(simllm.Review, "amber", "birch")
}

// askedAgain holds that since releaseHalf models were asked only for the reviews that
// were in flight when the process was killed, and for the final answer.
func (p *process) askedAgain() {
	p.Helper()
	calls := map[string]int{}
	for len(p.asked) > 0 {
		task := <-p.asked
		calls[string(task.Kind)+" "+task.Model]++
	}
	want := map[string]int{"review cedar": 1, "review dune": 1, "synthesis amber": 1}
	if diff := cmp.Diff(want, calls); diff != "" {
		p.Errorf("calls after the restart (-want +got):\n%s", diff)
	}
}

// cutInStage2 asks on the page, and kills the process when half the reviews are in.
func cutInStage2(p *process, question string) *tab {
	p.Helper()
	page := open(p.T, p.url, "")
	page.ask(question)
	page.do(chromedp.Evaluate[chromedp.Void](`window.sameDocument = true`))
	p.releaseHalf()
	page.until(seats(reviews) + ` === "amber done, birch done, cedar reviewing, dune reviewing"`)
	p.kill()
	page.until(firstNotice + `.startsWith("` + lostLine + `Trying again")`)
	p.release(simllm.Review, "cedar", "dune")
	return page
}

// TestKilled kills the daemon in stage 2 and starts it again. The session ends on the
// page without a reload, no reply that landed is paid for again, and the history shows
// the question.
func TestKilled(t *testing.T) {
	t.Parallel()
	p := startProcess(t, nil)
	const question = "What outlives its process?"
	page := cutInStage2(p, question)
	page.shot("1-killed")
	p.start()
	page.says(said, "The answer is complete.")
	page.readsWhole()
	p.askedAgain()
	if text := page.text("#session .notice.warn"); !strings.Contains(text, "may have been paid twice: cedar, dune") {
		t.Errorf("the page does not say what may have been paid twice: %q", text)
	}
	if text := value[string](page, firstNotice); strings.Contains(text, "lost") {
		t.Errorf("the page still says %q", text)
	}
	if got := value[string](page, seats(answers)+` + "; " + `+seats(reviews)); strings.Count(got, " done") != 8 {
		t.Errorf("the members read %q", got)
	}
	if !value[bool](page, `window.sameDocument === true`) {
		t.Error("the page was loaded again")
	}
	page.shot("2-complete")
	page.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/"`))
	for _, tab := range []*tab{page, open(t, p.url, "")} { // the second is of another browser, which did not ask
		tab.until(`document.querySelectorAll("#sessions li").length === 1`)
		tab.says("#sessions a", question)
		tab.says("#sessions li", "complete")
	}
}

// TestKilledInTheAnswer kills the daemon while the page shows a part of the final answer,
// which is void then: another one takes its place, once.
func TestKilledInTheAnswer(t *testing.T) {
	t.Parallel()
	p := startProcess(t, nil)
	page := open(t, p.url, "")
	page.ask("What outlives half an answer?")
	p.release(simllm.Review, "amber", "birch", "cedar", "dune")
	page.until(`document.querySelector('` + answer + `[aria-busy="true"]')?.textContent.includes("Sentence 1 ")`)
	page.do(chromedp.Evaluate[chromedp.Void](`{
		const text = document.querySelector('` + answer + `');
		new MutationObserver(() => { window.doubled ||= text.textContent.split("Sentence 0 ").length > 2; }).observe(text, { childList: true });
	}`))
	p.kill()
	page.until(firstNotice + `.startsWith("` + lostLine + `Trying again")`)
	page.do(chromedp.Evaluate[chromedp.Void](`{
		const said = document.querySelector('` + said + `'), all = window.said = [];
		new MutationObserver(() => all.push(said.textContent)).observe(said, { childList: true });
	}`))
	p.start()
	page.says(said, "The answer is complete.")
	page.readsWhole()
	told := value[[]string](page, `window.said`)
	want := []string{"The text of the final answer was interrupted, and is written again.", "The answer is complete."}
	if !slices.Equal(told, want) {
		t.Errorf("the page says %q, want %q", told, want)
	}
	if value[bool](page, `window.doubled`) {
		t.Error("the page showed the void part before the new text")
	}
	calls := map[simllm.TaskKind]int{}
	for len(p.asked) > 0 {
		calls[(<-p.asked).Kind]++
	}
	if diff := cmp.Diff(map[simllm.TaskKind]int{simllm.Question: 4, simllm.Review: 4, simllm.Synthesis: 2}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestKilledWithoutADirectory holds that a session that is in memory only is gone after
// a restart, as the page has said, and that the page says that, too.
func TestKilledWithoutADirectory(t *testing.T) {
	t.Parallel()
	p := startProcess(t, map[string]string{"DATA_DIR": "off"})
	page := cutInStage2(p, "What is in memory only?")
	p.start()
	page.says("#session .notice.bad", "there is no session")
	if text := value[string](page, firstNotice); strings.Contains(text, "lost") {
		t.Errorf("the page still says %q", text)
	}
	page.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/"`))
	page.says("#sessions", "No sessions yet.")
}

// TestAskOverAKill holds that councild ask --server prints the whole answer when the
// daemon is killed and started again meanwhile.
func TestAskOverAKill(t *testing.T) {
	t.Parallel()
	p := startProcess(t, nil)
	ask, err := command(t.Context(), p.env, "ask", "--server", p.url, "Who waits?")
	if err != nil {
		t.Fatal(err)
	}
	var printed, complaints strings.Builder
	ask.Stdout, ask.Stderr = &printed, &complaints
	if err := ask.Start(); err != nil {
		t.Fatal(err)
	}
	p.releaseHalf()
	list := get[struct{ Sessions []council.Summary }](t, p.url+"/v1/council")
	if len(list.Sessions) != 1 {
		t.Fatalf("the daemon has %v", list.Sessions)
	}
	id := list.Sessions[0].ID
	p.waitForBallots(id, 2)
	p.kill()
	p.release(simllm.Review, "cedar", "dune")
	p.start()
	if err := ask.Wait(); err != nil {
		t.Errorf("%v: %s", err, &complaints)
	}
	if !strings.HasPrefix(printed.String(), long()+"\n\nThe reviewers ") {
		t.Errorf("the answer is not what was written: %s", &printed)
	}
	if !strings.Contains(printed.String(), "session "+id+": complete\n") {
		t.Errorf("the session is not said to be complete: %s", &printed)
	}
	p.askedAgain()
}

// waitForBallots waits until a session has n ballots in its log.
func (p *process) waitForBallots(id string, n int) {
	p.Helper()
	req, err := http.NewRequestWithContext(p.Context(), http.MethodGet, p.url+"/v1/council/"+id+"/events", http.NoBody)
	if err != nil {
		p.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	for e, err := range client.ReadEvents(resp.Body) {
		if err != nil {
			p.Fatal(err)
		}
		if e.Type == council.EventBallot {
			n--
		}
		if n == 0 {
			return
		}
	}
	p.Fatal("the stream of events has ended")
}
