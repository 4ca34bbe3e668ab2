package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// openTerminal returns both ends of a terminal of so many columns and 24 rows: what is
// written to the second is read from the first.
func openTerminal(t *testing.T, columns uint16) (reader, terminal *os.File) {
	t.Helper()
	reader, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	control := func(request uintptr, argument unsafe.Pointer) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, reader.Fd(), request, uintptr(argument)); errno != 0 {
			t.Fatal(errno)
		}
	}
	var unlocked, number int32
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	size := [4]uint16{24, columns}
	control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return reader, terminal
}

// onTerminal runs something with a terminal and returns all that it wrote.
func onTerminal(t *testing.T, columns uint16, do func(terminal *os.File)) string {
	t.Helper()
	reader, terminal := openTerminal(t, columns)
	written := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(reader) // it ends with an error once the other end is closed
		written <- string(text)
	}()
	do(terminal)
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	return <-written
}

const spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

// shown plays what was written to a terminal, and returns what stands on it at the end, and the
// length of the longest line of a seat at any time.
func shown(t *testing.T, written string) (text string, widest int) {
	t.Helper()
	written = regexp.MustCompile(`\x1b\[\d+m`).ReplaceAllString(written, "")
	var lines []string
	line, column := 0, 0
	for len(written) > 0 {
		if escape := regexp.MustCompile(`^\x1b\[(\d+)A\r\x1b\[J`).FindStringSubmatch(written); escape != nil {
			var up int
			_, _ = fmt.Sscan(escape[1], &up)
			if line -= up; line < 0 {
				t.Fatalf("the cursor goes %d lines up from line %d", up, line+up)
			}
			lines, column = lines[:line], 0
			written = written[len(escape[0]):]
			continue
		}
		r := []rune(written)[0]
		written = written[len(string(r)):]
		for len(lines) <= line {
			lines = append(lines, "")
		}
		switch {
		case r == '\r':
			column = 0
		case r == '\n':
			line++
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0:
			t.Fatalf("the control character %q before %.40q", r, written)
		default:
			column++
			lines[line] += string(r)
			if strings.ContainsAny(lines[line], spinner+"✓✗") {
				widest = max(widest, column)
			}
		}
	}
	return strings.Join(lines, "\n"), widest
}

// On a terminal the seats are drawn in place while they work. At the end every seat stands there
// once, whatever the width.
func TestAskOnATerminal(t *testing.T) {
	testkit.Slow(t)
	slow := daemontest.Members()[:3]
	for i := range slow {
		slow[i].Latency = simllm.Latency{Median: 3 * frameTime}
	}
	for _, columns := range []uint16{20, 80} {
		t.Run(strconv.Itoa(int(columns)), func(t *testing.T) {
			daemontest.Setenv(t, map[string]string{"BASE_URL": daemontest.Provider(t, slow...).URL(), "MODELS": "a,b,c"})
			t.Setenv("NO_COLOR", "")
			t.Setenv("TERM", "xterm")
			var stdout bytes.Buffer
			written := onTerminal(t, columns, func(terminal *os.File) {
				if code := Main(t.Context(), IO{Args: []string{"ask", "Which way?"}, Stdout: &stdout, Stderr: terminal}); code != exitOK {
					t.Errorf("exit %d", code)
				}
			})
			text, widest := shown(t, written)
			if widest >= int(columns) {
				t.Errorf("a line has %d columns", widest)
			}
			if got := strings.Count(text, "✓"); got != 6 || strings.ContainsAny(text, spinner) {
				t.Errorf("%d seats are over, want 6:\n%s", got, text)
			}
			frames := 0
			for _, frame := range spinner {
				if strings.ContainsRune(written, frame) {
					frames++
				}
			}
			if frames < 2 {
				t.Errorf("%d frames: nothing moves", frames)
			}
			if !strings.Contains(written, "\x1b[32m") {
				t.Error("there is no colour")
			}
			if columns == 80 && !strings.Contains(text, "wrote the answer in ") {
				t.Errorf("the chairman is missing:\n%s", text)
			}
			if strings.ContainsRune(stdout.String(), 0x1b) {
				t.Errorf("stdout is no terminal, and has an escape: %q", stdout.String())
			}
		})
	}
}

// NO_COLOR takes the colour away, and a dumb terminal gets lines without any escape.
func TestTerminalsWithLess(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c"})
	ask := func() string {
		return onTerminal(t, 80, func(terminal *os.File) {
			if code := Main(t.Context(), IO{Args: []string{"ask", "Which way?"}, Stdout: terminal, Stderr: terminal}); code != exitOK {
				t.Errorf("exit %d", code)
			}
		})
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	written := ask()
	if regexp.MustCompile(`\x1b\[\d+m`).MatchString(written) || !strings.Contains(written, "\x1b[J") {
		t.Errorf("NO_COLOR: %q", written)
	}
	if text, _ := shown(t, written); strings.Count(text, "Simulated synthesis.") != 1 || !strings.Contains(text, "Ranking ") {
		t.Errorf("the answer is not there once:\n%s", text)
	}
	t.Setenv("TERM", "dumb")
	if written := ask(); strings.ContainsRune(written, 0x1b) || !strings.Contains(written, "asking 3 models ...") {
		t.Errorf("a dumb terminal: %q", written)
	}
}

// A seat that fails, a log line in the middle and an end before the end leave a clean terminal.
func TestScreen(t *testing.T) {
	written := onTerminal(t, 60, func(terminal *os.File) {
		p := &progress{screen: newScreen(terminal)}
		p.Observe(council.Event{Data: council.Started{Models: []string{"a", "b\x1b[2J", "c"}, Reviewers: []string{"a", "c"}, Chairman: "a"}})
		p.Observe(council.Event{Data: council.AnswerDelta{Model: "c", Text: "Half an"}})
		p.Observe(council.Event{Data: council.Answer{Model: "a", Spent: council.Spent{LatencyMS: 1200}}})
		failure := &council.Failure{Code: council.FailRejected, Message: "no\x1b[2J,\nnever"}
		p.Observe(council.Event{Data: council.Answer{Model: "b\x1b[2J", Error: failure}})
		p.tell(nil, "councild: warning: the disk is \x07full")
		p.Observe(council.Event{Data: []council.Answer{}})
		p.Observe(council.Event{Data: council.Tally{}})
		p.Observe(council.Event{Data: council.Restart{Model: "a", Reason: council.FailReset}})
		p.close()
	})
	if !strings.Contains(written, "c writes its answer") {
		t.Errorf("nothing says that c writes: %q", written)
	}
	want := `councild: warning: the disk is full
✓   1.2s  a answered
✗   0.0s  b[2J failed: rejected: no[2J, never
a failed: reset; its text so far does not count
`
	if text, _ := shown(t, written); strings.TrimRight(text, "\n") != strings.TrimRight(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// More seats than the terminal has rows are cut, so that the lines can be found again.
func TestScreenWithManySeats(t *testing.T) {
	models := make([]string, 40)
	for i := range models {
		models[i] = fmt.Sprintf("m%d", i)
	}
	written := onTerminal(t, 60, func(terminal *os.File) {
		s := newScreen(terminal)
		s.begin("is asked", models...)
		s.close()
	})
	if !strings.Contains(written, "... and 18 more") || strings.Contains(written, "m22 ") {
		t.Errorf("got %q", written)
	}
}

// Ctrl-C while the standard input gives nothing ends the command.
func TestAskIsInterruptedWhileReading(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"MODELS": "sim:amber,sim:birch"})
	never, writer := io.Pipe()
	defer writer.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var stderr bytes.Buffer
	if code := Main(ctx, IO{Args: []string{"ask", "-"}, Stdin: never, Stdout: io.Discard, Stderr: &stderr}); code != ExitInterrupted {
		t.Errorf("exit %d: %s", code, &stderr)
	}
}
