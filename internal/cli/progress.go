package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/councild/councild/internal/council"
	"golang.org/x/term"
)

// frameTime is the time between two frames of the screen.
const frameTime = 120 * time.Millisecond

// progress shows on a terminal what the members do, and the answer as it arrives.
type progress struct {
	// steps gets one line for each step. It is nil without a terminal, and if screen is set.
	steps io.Writer
	// screen draws the seats in place. It is nil if the terminal cannot do so.
	screen *screen
	// answer gets the text of the answer. It is nil without a terminal, and if the user wants another form.
	answer  io.Writer
	session string // id of the session, after its start
	started council.Started
	open    bool // the answer gets more text
}

// newProgress returns the progress for the two output streams. The caller calls close at the end.
func newProgress(stdout, stderr io.Writer) *progress {
	p := &progress{}
	if isTerminal(stdout) {
		p.answer = terminal{stdout}
	}
	switch f, ok := stderr.(*os.File); {
	case !isTerminal(stderr):
	case ok && os.Getenv("TERM") != "dumb":
		p.screen = newScreen(f)
	default:
		p.steps = terminal{stderr}
	}
	return p
}

// close removes the lines of seats that still work.
func (p *progress) close() {
	if p.screen != nil {
		p.screen.close()
	}
}

// Observe implements council.Observer.
func (p *progress) Observe(e council.Event) {
	switch data := e.Data.(type) {
	case council.Started:
		p.started = data
		p.session = data.SessionID
	case council.FirstAsked:
		if !data.Convened { // No other stage runs.
			p.started.Reviewers = nil
			p.started.Chairman = ""
		}
	}
	if p.screen != nil {
		p.draw(e.Data)
	}
	var step, piece string
	switch data := e.Data.(type) {
	case council.Started:
		step = fmt.Sprintf("asking %d models ...", len(beginners(data)))
		if data.Mode == council.ModeJudge {
			step = fmt.Sprintf("asking %d judges ...", len(data.Reviewers))
		}
	case council.Answer:
		if p.started.Mode != council.ModeJudge {
			step = fmt.Sprintf("  %s %s", data.Model, answered(data))
		}
	case council.FirstAsked:
		step = data.Sentence(len(p.started.Models))
		if rest := p.rest(data); len(rest) > 0 {
			step += fmt.Sprintf("\nasking %d more ...", len(rest))
		}
	case []council.Answer:
		if p.writesNext() {
			step = "the chairman writes ..."
		}
	case council.Review:
		step = fmt.Sprintf("  %s %s", data.Model, outcome(reviewed(data), data.Error, data.LatencyMS))
	case council.Tally:
		if p.started.Chairman != "" {
			step = "the chairman writes ..."
		}
	case council.Delta:
		piece = data.Text
		p.open = true
	case council.Restart:
		why, writer := voided(data)
		piece = "\n\n"
		step = fmt.Sprintf("  %s, %s writes ...", why, writer)
	case council.Synthesis:
		piece = "\n\n"
		p.open = false
		step = fmt.Sprintf("  %s wrote the answer in %.1f s", data.Model, data.LatencyMS/1000)
	case *council.Session:
		if p.open { // The answer is that of a member. No synthesis ends it.
			piece = "\n\n"
		}
	}
	if p.answer != nil {
		_, _ = io.WriteString(p.answer, piece)
	}
	if p.steps != nil && step != "" {
		_, _ = fmt.Fprintln(p.steps, step)
	}
}

// draw shows an event on the screen.
func (p *progress) draw(data any) {
	switch data := data.(type) {
	case council.Started:
		if data.Mode != council.ModeJudge { // The answers to judge are there already.
			p.screen.begin("is asked", beginners(data)...)
		}
	case council.AnswerDelta:
		p.screen.change(data.Model, "writes its answer")
	case council.AnswerRestart:
		p.screen.change(data.Model, "is asked again")
	case council.Answer:
		if data.Given {
			p.screen.end(data.Model, "answered earlier", nil, 0)
		} else {
			p.screen.end(data.Model, "answered", data.Error, data.LatencyMS)
		}
	case council.FirstAsked:
		if rest := p.rest(data); len(rest) > 0 {
			p.screen.begin("is asked", rest...)
		}
		p.screen.note(data.Sentence(len(p.started.Models)))
	case []council.Answer:
		if p.writesNext() {
			p.screen.begin("writes the answer", p.started.Chairman)
		} else {
			p.screen.begin("reviews", p.started.Reviewers...)
		}
	case council.Review:
		p.screen.end(data.Model, reviewed(data), data.Error, data.LatencyMS)
	case council.Tally:
		if p.started.Chairman != "" {
			p.screen.begin("writes the answer", p.started.Chairman)
		} else {
			p.screen.begin("")
		}
	case council.Delta:
		if p.answer != nil {
			p.screen.begin("") // The answer itself now shows that the council works.
		}
	case council.Restart:
		why, writer := voided(data)
		p.screen.note(why)
		p.screen.begin("writes the answer", writer)
	case council.Synthesis:
		p.screen.begin("")
		p.screen.note(fmt.Sprintf("%s wrote the answer in %.1f s", data.Model, data.LatencyMS/1000))
	}
}

// beginners returns the members that are asked at the start of a session.
func beginners(s council.Started) []string {
	if s.First > 0 && s.First < len(s.Models) {
		return s.Models[:s.First]
	}
	return s.Models
}

// rest returns the members that are asked after the members that began.
func (p *progress) rest(first council.FirstAsked) []string {
	if n := len(first.Asked); first.Convened && n > 0 && n < len(p.started.Models) {
		return p.started.Models[n:]
	}
	return nil
}

// writesNext reports whether the chairman writes after the answers, because there are no reviewers.
func (p *progress) writesNext() bool {
	return p.started.Mode.Writes() && p.started.Chairman != "" && len(p.started.Reviewers) == 0
}

// answered says how a member's call ended.
func answered(a council.Answer) string {
	if a.Given {
		return "answered earlier"
	}
	return outcome("answered", a.Error, a.LatencyMS)
}

// voided returns, for a restart, why the text of the final answer so far is void, and who writes the answer again.
func voided(r council.Restart) (why, writer string) {
	if r.Reason == council.FailInterrupted {
		return "the answer so far was interrupted, and does not count", "the chairman"
	}
	if r.Reason == council.FailMap {
		return "the text so far ended with the map of disagreement", r.Model
	}
	if r.Reason == council.FailThinking {
		return "the text so far was the thinking of " + r.Model, r.Model
	}
	return fmt.Sprintf("%s failed: %s; its text so far does not count", r.Model, r.Reason), "another model"
}

// tell shows a line to the user. It uses the screen if there is one, and stderr otherwise.
func (p *progress) tell(stderr io.Writer, line string) {
	if p.screen != nil {
		p.screen.note(line)
		return
	}
	_, _ = fmt.Fprintln(terminal{stderr}, line)
}

// reviewed is a text that says what a reviewer did.
func reviewed(r council.Review) string {
	if r.Status == council.OutcomeAbstained {
		return "declined to rank"
	}
	return "reviewed"
}

// outcome says how a call ended, and after how many seconds. ms are milliseconds.
func outcome(word string, failure *council.Failure, ms float64) string {
	if failure != nil {
		return fmt.Sprintf("failed after %.1f s: %s", ms/1000, failure.Code)
	}
	return fmt.Sprintf("%s in %.1f s", word, ms/1000)
}

// terminal writes to a terminal, and leaves out control characters. Otherwise the text of a model could move the
// cursor or hide other text.
type terminal struct{ io.Writer }

// Write implements io.Writer.
func (t terminal) Write(p []byte) (int, error) {
	_, err := io.WriteString(t.Writer, visible(string(p)))
	return len(p), err
}

// visible is the text without control characters, except line breaks and tabs.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// seat is one line of the screen: what a model does or has done.
type seat struct {
	model, does string
	begun       time.Time
	took        time.Duration
	over        bool
	failed      bool
}

// screen draws the seats of a stage on a terminal, one line each. While models work, it redraws their lines in the same
// place.
type screen struct {
	out    *os.File
	colour bool
	ended  chan struct{}
	drawer sync.WaitGroup

	mu    sync.Mutex // guards out and all below
	seats []seat
	frame int
	drawn int // how many lines on the terminal the next frame replaces
}

// newScreen returns a screen and starts the goroutine that draws it. The method close ends that goroutine.
func newScreen(out *os.File) *screen {
	s := &screen{out: out, colour: os.Getenv("NO_COLOR") == "", ended: make(chan struct{})}
	s.drawer.Go(func() {
		tick := time.NewTicker(frameTime)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.mu.Lock()
				s.frame++
				s.drawLocked("")
				s.mu.Unlock()
			case <-s.ended:
				return
			}
		}
	})
	return s
}

// close ends the drawing and removes the lines of seats that still work.
func (s *screen) close() {
	close(s.ended)
	s.drawer.Wait()
	s.begin("")
}

// begin draws new seats. It leaves the lines of finished seats on the terminal, and removes the lines of the other
// seats.
func (s *screen) begin(does string, models ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seats = slices.DeleteFunc(s.seats, func(seat seat) bool { return !seat.over })
	s.drawLocked("")
	s.seats = nil
	s.drawn = 0
	for _, model := range models {
		s.seats = append(s.seats, seat{model: model, does: does, begun: time.Now()})
	}
	s.drawLocked("")
}

// change sets what a seat does now. The next frame shows it.
func (s *screen) change(model, does string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.seats {
		if seat := &s.seats[i]; seat.model == model && !seat.over {
			seat.does = does
		}
	}
}

// end sets what a seat has done, or how it failed. ms is how many milliseconds it took.
func (s *screen) end(model, did string, failure *council.Failure, ms float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.seats {
		if seat := &s.seats[i]; seat.model == model && !seat.over {
			seat.over = true
			seat.does = did
			seat.took = time.Duration(ms * float64(time.Millisecond))
			if failure != nil {
				seat.failed = true
				seat.does = fmt.Sprintf("failed: %s: %s", failure.Code, failure.Message)
			}
		}
	}
	s.drawLocked("")
}

// note writes a line that stays on the terminal, above the seats.
func (s *screen) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawLocked(visible(line) + "\n")
}

// drawLocked overwrites the seats of the last frame. It first writes the text in the argument stays, which later frames
// do not overwrite, and then the seats. Every line is narrower than the terminal, and there are fewer lines than the
// terminal has rows, because otherwise the next frame could not find the lines again.
func (s *screen) drawLocked(stays string) {
	if stays == "" && s.drawn == 0 && len(s.seats) == 0 {
		return
	}
	columns, rows, err := term.GetSize(int(s.out.Fd()))
	if err != nil || columns < 1 || rows < 1 { // Some terminals have no size.
		columns = 80
		rows = 24
	}
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", s.drawn)
	}
	b.WriteString(stays)
	s.drawn = 0
	for i, seat := range s.seats {
		if i == rows-2 && i < len(s.seats)-1 {
			fmt.Fprintf(&b, "%s\n", clip(fmt.Sprintf("... and %d more", len(s.seats)-i), columns-1))
			s.drawn++
			break
		}
		s.drawn++
		b.WriteString(s.line(seat, columns))
	}
	_, _ = s.out.WriteString(b.String())
}

// line returns a seat as a line that is narrower than the given columns.
func (s *screen) line(seat seat, columns int) string {
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	mark := frames[s.frame%len(frames)]
	colour := 36
	took := time.Since(seat.begun)
	switch {
	case seat.failed:
		mark = '✗'
		colour = 31
		took = seat.took
	case seat.over:
		mark = '✓'
		colour = 32
		took = seat.took
	}
	text := strings.Join(strings.Fields(visible(fmt.Sprintf("%s %s", seat.model, seat.does))), " ")
	text = clip(fmt.Sprintf(" %5.1fs  %s", took.Seconds(), text), columns-3) // The mark can be two columns wide.
	if !s.colour {
		return string(mark) + text + "\n"
	}
	return fmt.Sprintf("\x1b[%dm%c\x1b[0m%s\n", colour, mark, text)
}

// clip cuts a text to a number of columns. It counts two columns for each character that can be wide.
func clip(text string, columns int) string {
	for i, r := range text {
		columns--
		if r >= unicode.MaxLatin1 {
			columns--
		}
		if columns < 0 {
			return text[:i]
		}
	}
	return text
}

// plainLog is a slog.Handler that shows warnings and errors as plain lines, for users who do not expect a log.
type plainLog struct{ tell func(line string) }

// Enabled implements slog.Handler.
func (plainLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (l plainLog) Handle(_ context.Context, r slog.Record) error {
	line := "councild: warning: " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += ": "
		if a.Key != "setting" && a.Key != "error" {
			line += a.Key + " "
		}
		line += a.Value.String()
		return true
	})
	l.tell(line)
	return nil
}

// WithAttrs implements slog.Handler. It drops the attributes, because they are the same for all lines of one
// question.
func (l plainLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l plainLog) WithGroup(string) slog.Handler { return l }
