package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/simllm"
)

// screens are a wide screen and a phone.
var screens = [][2]int64{{1440, 900}, {390, 844}}

// paged is a text of at least so many bytes in paragraphs.
func paged(name string, size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "Paragraph %d of %s says in plain words what there is to say about this question.\n\n", i, name)
	}
	return b.String()
}

// inView is an expression for whether a button of the session with a text lies within the window.
func inView(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#session .actions :is(button, summary)")].some((b) => b.textContent === %q && b.checkVisibility()
		&& b.getBoundingClientRect().top >= 0 && b.getBoundingClientRect().bottom <= innerHeight
		&& b.getBoundingClientRect().left >= 0 && b.getBoundingClientRect().right <= innerWidth
		&& b.contains(document.elementFromPoint(b.getBoundingClientRect().x + 5, b.getBoundingClientRect().y + 5)))`, text)
}

// TestFirstScreen holds that an answer of 200 KB begins within the first screen, also below a long question and the notice of
// a degraded session, that its lines have at most 72 characters, and that the actions stay in reach wherever the reader is.
func TestFirstScreen(t *testing.T) {
	t.Parallel()
	models := append(members(), simllm.Model{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 401}}})
	for i := range models[:4] {
		models[i].Reply = func(task simllm.Task) (string, bool) {
			return paged(task.Model, 200_000), task.Kind == simllm.Synthesis
		}
	}
	p := open(t, daemon(t, nil, models...), "")
	p.ask("How long may an answer be? " + strings.Repeat("This question is long, too. ", 30))
	p.says(said, "The answer is degraded.")
	p.until(`document.getElementById("follow-up")`)
	p.until(`document.querySelectorAll('` + answer + ` p').length > 2300`)
	for _, screen := range screens {
		p.look(screen[0], screen[1], "light")
		p.do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0)`))
		if top := value[float64](p, `document.querySelector('`+answer+`').getBoundingClientRect().top`); top > float64(screen[1])-60 {
			t.Errorf("on %d pixels the answer begins at %.0f", screen[0], top)
		}
		if lines := value[float64](p, `document.querySelector("h1.question").getBoundingClientRect().height
			/ parseFloat(getComputedStyle(document.querySelector("h1.question")).lineHeight)`); lines > 3.1 {
			t.Errorf("the question takes %.1f lines", lines)
		}
		// A line of the answer has as many characters as fit before the text goes on at the left again.
		if most := value[int](p, `(() => {
			let most = 0;
			for (const p of [...document.querySelectorAll('`+answer+` p')].slice(0, 50)) {
				const text = p.firstChild, range = document.createRange();
				for (let i = 0, from = 0, y = null; i < text.length; i++) {
					range.setStart(text, i);
					range.setEnd(text, i + 1);
					const { top } = range.getBoundingClientRect();
					if (y !== null && top > y + 5) from = i;
					y = top;
					most = Math.max(most, i - from + 1);
				}
			}
			return most;
		})()`); most > 74 {
			t.Errorf("on %d pixels a line of the answer has %d characters", screen[0], most)
		}
		for _, where := range []string{"0", "1000", "document.querySelector('" + answer + "').getBoundingClientRect().bottom + scrollY - 400", "document.body.scrollHeight - 1500"} {
			p.do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, ` + where + `)`))
			for _, action := range []string{"Copy", "Share", "Download", "Continue"} {
				if !value[bool](p, inView(action)) {
					t.Errorf("on %d pixels, scrolled to %s, %s is out of reach", screen[0], where, action)
				}
			}
		}
		p.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("#session .actions button")].find((b) => b.textContent === "Continue").click()`))
		p.until(`document.activeElement.id === "follow-up" && document.activeElement.getBoundingClientRect().top > 60 && document.activeElement.getBoundingClientRect().bottom < innerHeight`)
	}
	p.look(1100, 900, "light")
	p.do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0)`))
	p.do(chromedp.Click(chromedp.CSS("#session .question + details > summary")))
	p.until(`document.querySelector("#session .question + details .prose").textContent.trim().endsWith("too.")`)
}

// tracking records where a node is on the screen, and how wide it is, in each frame as it is painted.
const tracking = `{
	globalThis.track = { tops: new Set(), widths: new Set() };
	const look = () => {
		const seen = new IntersectionObserver(([{ boundingClientRect: { top, width } }]) => {
			track.tops.add(top);
			track.widths.add(width);
			seen.disconnect();
			requestAnimationFrame(look);
		});
		seen.observe(tracked());
	};
	look();
}`

// TestOpenedAnswerStays holds that an answer that the reader has opened moves 0 pixels between the stages, and keeps its width.
// At the top of the page, a final answer of 200 KB arrives above it. Further down, a map does.
func TestOpenedAnswerStays(t *testing.T) {
	t.Parallel()
	for _, screen := range screens {
		for _, scrolled := range []bool{false, true} {
			t.Run(fmt.Sprint(screen[0], scrolled), func(t *testing.T) {
				t.Parallel()
				models := disputing(simllm.Maps{}, "80", "8080", "80")
				gates := map[simllm.TaskKind]chan struct{}{
					simllm.Question: make(chan struct{}), simllm.Review: make(chan struct{}), simllm.Synthesis: make(chan struct{}),
				}
				for i := range models {
					if models[i].Name == "birch" {
						models[i].ChunkDelay = 2 * time.Millisecond
					}
					models[i].Reply = func(task simllm.Task) (string, bool) {
						if task.Kind != simllm.Question || task.Model != "birch" {
							select {
							case <-gates[task.Kind]:
							case <-t.Context().Done():
							}
						}
						if task.Kind == simllm.Synthesis && !scrolled {
							return paged("the council", 200_000), true
						}
						return paged("birch", 20_000) + "The value of the port is 8080.", task.Kind == simllm.Question && task.Model == "birch"
					}
				}
				p := open(t, daemon(t, nil, models...), "")
				p.look(screen[0], screen[1], "light")
				p.ask("Which port?")
				p.until(seat(answers, "birch") + `?.querySelector(".state").textContent === "writing"`)
				p.openAnswer("birch")
				if scrolled {
					p.until(panel("birch") + `.querySelectorAll("p").length > 40`)
					p.do(chromedp.Evaluate[chromedp.Void](panel("birch") + `.querySelectorAll("p")[20].scrollIntoView({ block: "center" })`))
					p.do(chromedp.Evaluate[chromedp.Void](`globalThis.tracked = () => ` + panel("birch") + `.querySelectorAll("p")[20]`))
				} else {
					p.do(chromedp.Evaluate[chromedp.Void](`globalThis.tracked = () => ` + panel("birch")))
				}
				p.do(chromedp.Evaluate[chromedp.Void](tracking))
				stays := func(when string) {
					t.Helper()
					tops, widths := value[[]float64](p, `[...track.tops]`), value[[]float64](p, `[...track.widths]`)
					if slices.Max(tops)-slices.Min(tops) > 0.1 || len(widths) != 1 {
						t.Errorf("%s: the answer was at %v, and %v wide", when, tops, widths)
					}
				}
				p.until(seat(answers, "birch") + `.querySelector(".state").textContent === "done"`)
				stays("while it was written")
				close(gates[simllm.Question])
				p.until(seats(reviews) + ` === "amber reviewing, birch reviewing, cedar reviewing"`)
				stays("after the answers")
				close(gates[simllm.Review])
				p.says(said, "The chairman is writing.")
				stays("after the reviews")
				close(gates[simllm.Synthesis])
				p.says(said, "The answer is complete.")
				p.until(`document.getElementById("follow-up")`)
				if scrolled {
					p.says(strip, "Disputed")
				} else {
					p.until(`document.querySelectorAll('` + answer + ` p').length > 2000`)
				}
				<-time.After(300 * time.Millisecond)
				stays("at the end")
			})
		}
	}
}

// TestTitleAndNotice holds that the title of the tab shows how far a session is, and that a reader who allows it is told
// when the answer is there.
func TestTitleAndNotice(t *testing.T) {
	t.Parallel()
	models := members()
	release := hold(t, models, simllm.Question, simllm.Review, simllm.Synthesis)
	p := open(t, daemon(t, nil, models...), "")
	p.do(chromedp.Evaluate[chromedp.Void](`globalThis.told = [];
		globalThis.Notification = class {
			static permission = "default";
			static async requestPermission() { return (Notification.permission = "granted"); }
			constructor(title, { body }) { told.push(title + ": " + body); }
		};
		document.hasFocus = () => false;`))
	p.ask("When are you done?")
	p.until(`document.title === "▸ 0 of 4 · When are you done?"`)
	p.shot("waiting")
	p.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("#session .actions button")].find((b) => b.textContent === "Notify me").click()`))
	p.says("#session .actions", "You will be notified")
	release(simllm.Question, "amber", "birch")
	p.until(`document.title === "▸ 2 of 4 · When are you done?" && document.querySelector('link[rel="icon"]').href.endsWith("/icon-busy.svg")`)
	p.says(said, "Two of four have answered. Reviews begin when the last one is done.")
	release(simllm.Question, "cedar", "dune")
	p.until(`document.title === "▸ 0 of 4 · When are you done?"`)
	release(simllm.Review, "amber", "birch", "cedar", "dune")
	p.until(`document.title === "▸ writing · When are you done?"`)
	p.look(390, 844, "light")
	p.shot("phone")
	p.look(1440, 900, "light")
	p.shot("wide")
	if told := value[[]string](p, `told`); len(told) != 0 {
		t.Errorf("the reader was told %q", told)
	}
	release(simllm.Synthesis, "amber", "birch", "cedar", "dune")
	p.until(`document.title === "✓ When are you done?" && document.querySelector('link[rel="icon"]').href.endsWith("/icon-done.svg")`)
	if told := value[[]string](p, `told`); len(told) != 1 || told[0] != "The answer is there: When are you done?" {
		t.Errorf("the reader was told %q", told)
	}
	p.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/history"`))
	p.until(`document.title === "History · councild" && document.querySelector('link[rel="icon"]').href.endsWith("/icon.svg")`)
}

// TestThread holds that a session links to the other turns of its conversation.
func TestThread(t *testing.T) {
	t.Parallel()
	origin := before(t, daemon(t, nil, members()...), func(w http.ResponseWriter, r *http.Request, daemon http.Handler) {
		id := r.URL.Query().Get("thread")
		if id == "" {
			daemon.ServeHTTP(w, r)
			return
		}
		turn := func(id, query, created, thread string) map[string]string {
			return map[string]string{"session_id": id, "query": query, "created": created, "thread": thread}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"sessions": []any{
			turn("later", "And then?", "2026-01-03T00:00:00Z", "first"), turn(id, "And now?", "2026-01-02T00:00:00Z", "first"),
			turn("first", "What was it?", "2026-01-01T00:00:00Z", "first"), turn("other", "Of another conversation?", "2026-01-01T00:00:00Z", "other"),
		}})
	})
	p := open(t, origin, "")
	p.ask("And now?")
	p.says(said, "The answer is complete.")
	p.until(`[...document.querySelectorAll("#session .thread a")].map((a) => a.textContent + (a.ariaCurrent ? " here" : "")).join(", ")
		=== "What was it?, And now? here, And then?"`)
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.shot("thread")
}

// TestRightToLeft holds that texts in Arabic are mirrored, with their lists, quotes and tables.
func TestRightToLeft(t *testing.T) {
	t.Parallel()
	const question = "هل نقسم النظام؟"
	const text = "نعم، ولكن **ليس الآن**.\n\n- الأول\n- الثاني\n\n> قال أحدهم\n\n| أ | ب |\n|---|---|\n| ١ | ٢ |"
	models := members()
	for i := range models {
		models[i].Reply = func(task simllm.Task) (string, bool) {
			if task.Kind != simllm.Review {
				return text, true
			}
			var words, labels []string
			for _, a := range task.Answers {
				words = append(words, "**"+a.Label+"** جيد جدا.")
				labels = append(labels, fmt.Sprintf("%q", a.Label))
			}
			return "مراجعة\n\n" + strings.Join(words, "\n\n") + "\n\n```json\n{\"ranking\": [" + strings.Join(labels, ",") + "]}\n```", true
		}
	}
	p := open(t, daemon(t, nil, models...), "")
	p.ask(question)
	p.says(said, "The answer is complete.")
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => { d.open = true; })`))
	p.openAnswer("birch")
	p.until(`document.querySelector(".sides .prose li") && ` + panel("birch") + `.querySelector(".prose li")`)
	for _, node := range []string{
		`document.querySelector("h1.question")`, `document.querySelector('` + answer + ` p')`, `document.querySelector('` + answer + ` ul')`,
		`document.querySelector('` + answer + ` blockquote')`, `document.querySelector('` + answer + ` table')`, `document.querySelector(".sides .prose ul")`,
		panel("birch") + `.querySelector(".prose ul")`, `document.querySelector('` + reviews + ` .prose')`,
	} {
		if got := value[string](p, `getComputedStyle(`+node+`).direction`); got != "rtl" {
			t.Errorf("the direction of %s is %s", node, got)
		}
	}
	if padding := value[string](p, `getComputedStyle(document.querySelector('`+answer+` ul')).paddingRight`); padding == "0px" {
		t.Error("the list is not indented on the right")
	}
	p.until(`document.getElementById("follow-up")`)
	p.do(chromedp.SendKeys(chromedp.ID("follow-up"), "ومتى؟"))
	if got := value[string](p, `getComputedStyle(document.getElementById("follow-up")).direction`); got != "rtl" {
		t.Errorf("the direction of the next question is %s", got)
	}
	p.shot("arabic")
}

// TestFollowUpOnAPhone holds that Enter begins a new line where the keyboard is on the screen, that the field grows, and that the
// button sends.
func TestFollowUpOnAPhone(t *testing.T) {
	t.Parallel()
	p := open(t, daemon(t, nil, members()...), "")
	p.ask("Where is Enter?")
	p.says(said, "The answer is complete.")
	p.until(`document.getElementById("follow-up")`)
	_, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 844, DeviceScaleFactor: 1, Mobile: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(p.ctx, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true}); err != nil {
		t.Fatal(err)
	}
	p.until(`matchMedia("(pointer: coarse)").matches`)
	before, one := value[string](p, `location.hash`), value[float64](p, `document.getElementById("follow-up").offsetHeight`)
	p.do(chromedp.Focus(chromedp.ID("follow-up")))
	p.press("First")
	for range 3 {
		p.press("\r")
	}
	p.press("Last")
	if got := value[string](p, `document.getElementById("follow-up").value`); !strings.HasPrefix(got, "First\n") || !strings.HasSuffix(got, "\nLast") {
		t.Errorf("the field has %q", got)
	}
	if after := value[float64](p, `document.getElementById("follow-up").offsetHeight`); after < one+40 {
		t.Errorf("the field was %.0f pixels high, and is %.0f", one, after)
	}
	if got := value[string](p, `location.hash`); got != before {
		t.Fatal("Enter has sent the question")
	}
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#session form .primary").click()`))
	p.until(`location.hash !== "` + before + `"`)
	p.says(said, "The answer is complete.")
}

// TestSharedReasons holds that a reason that several members share is said once, with their number, and that a session
// without a ranking says so.
func TestSharedReasons(t *testing.T) {
	t.Parallel()
	broken := []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 401}}
	silent := []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1, Status: 401, Tasks: []simllm.TaskKind{simllm.Review}}}
	p := open(t, daemon(t, map[string]string{"CHAIRMAN": "amber"}, simllm.Model{Name: "amber", Faults: silent}, simllm.Model{Name: "birch", Faults: silent}, simllm.Model{Name: "cedar", Faults: silent},
		simllm.Model{Name: "down", Faults: broken}, simllm.Model{Name: "out", Faults: broken}), "")
	p.ask("Who shares a reason?")
	p.says(said, "The answer is degraded.")
	p.says("#session .notice.warn", "Degraded. Two of five members failed, and five of five reviewers gave no ballot, so nobody could rank. "+
		"The answer is based on 3 answers.")
	if text := value[string](p, `document.querySelector("#session .notice.warn ul").textContent`); strings.Count(text, "Answers: two members, down and out: ") != 1 ||
		strings.Count(text, "Answers: ") != 1 {
		t.Errorf("the reasons are %q", text)
	}
	p.until(`[...document.querySelectorAll('` + answers + ` .place')].every((e) => e.textContent === "not ranked" || e.textContent === "")`)
	p.says("#session .when .badge", "degraded")
	p.do(chromedp.Click(chromedp.CSS("#session .notice.warn summary")))
	p.look(390, 844, "dark")
	p.shot("reasons")
}

// TestCancelSaysWhatIsSpent holds that the page asks before it cancels, and says what is spent.
func TestCancelSaysWhatIsSpent(t *testing.T) {
	t.Parallel()
	models := members()
	for i := range models {
		models[i].Price = simllm.Price{Input: 1, Output: 10}
	}
	hold(t, models, simllm.Review)
	p := open(t, daemon(t, nil, models...), "")
	p.ask("What is spent?")
	p.until(seats(reviews) + ` === "amber reviewing, birch reviewing, cedar reviewing, dune reviewing"`)
	p.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("#session .actions button")].find((b) => b.textContent === "Cancel").click()`))
	p.until(`/^Stop now\?What is spent stays spent: \$0\.\d+\.Keep runningStop$/.test(document.querySelector("dialog.sure")?.textContent)`)
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.shot("sure")
	p.do(chromedp.Click(chromedp.CSS(`dialog.sure [value="yes"]`)))
	p.says(said, "The session was cancelled.")
	p.says("#session .when .badge", "cancelled")
}

// TestInjectionsInASession shows the corpus of injections in all places of a session.
func TestInjectionsInASession(t *testing.T) {
	t.Parallel()
	corpus := strings.Join(injections, "\n\n")
	models := members()
	for i := range models {
		models[i].Reply = func(task simllm.Task) (string, bool) {
			if task.Kind != simllm.Review {
				return corpus, true
			}
			var labels, critiques []string
			for _, a := range task.Answers {
				labels = append(labels, fmt.Sprintf("%q", a.Label))
				critiques = append(critiques, "**"+a.Label+"** is weak.\n\n"+corpus)
			}
			return strings.Join(critiques, "\n\n") + "\n\n" + `{"ranking": [` + strings.Join(labels, ",") + `]}`, true
		}
	}
	origin := daemon(t, nil, models...)
	question, err := json.Marshal(corpus)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, origin, begin(t, origin, `"query": `+string(question)))
	p.says(said, "The answer is complete.")
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("#session details").forEach((d) => { d.open = true; })`))
	for _, model := range []string{"amber", "birch", "cedar", "dune"} {
		p.openAnswer(model)
		p.until(panel(model) + `.querySelector(".opinions .prose")?.textContent.includes("is weak") && ` + panel(model) + `.querySelector(".prose").textContent.includes("hacked")`)
	}
	p.until(`[...document.querySelectorAll(".sides .prose, ` + reviews + ` .prose")].every((e) => e.textContent.includes("hacked"))`)
	<-time.After(300 * time.Millisecond)
	const elements = "script, img, iframe, style, object, form:not(:has(#follow-up)), meta, base, link, svg:not(.bar), [onerror], [onload], [onclick], [onmouseover], " +
		"a[href^=javascript], a[href^=data], a[href^=file], a[href^=vbscript]"
	if found := value[[]string](p, `[...document.querySelectorAll("main :is(`+elements+`)")].filter((e) => e.closest("#session")).map((n) => n.outerHTML)`); len(found) > 0 {
		t.Errorf("texts became elements: %q", found)
	}
	if title := value[string](p, `document.title`); !strings.HasPrefix(title, "✓ <script>") {
		t.Errorf("the title is %q", title)
	}
}
