package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// growth measures how cost grows. It prints CSV: curve, x, y, unit of y.
func growth(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("growth", flag.ContinueOnError)
	root := flags.String("root", "..", "repository of councild")
	most := flags.Int("records", 1_000_000, "most records of a report")
	only := flags.String("only", "", "one of clients, members, answers, records and watchers; empty: all")
	quick := flags.Bool("quick", false, "measure the first two points of each curve, to see that the program works")
	if err := flags.Parse(args); err != nil {
		return err
	}
	w, err := newWorkplace(ctx, *root)
	if err != nil {
		return err
	}
	defer w.close()
	g := &grower{
		bencher: &bencher{workplace: w, root: *root},
		quick:   *quick,
		most:    *most,
		out:     csv.NewWriter(os.Stdout),
	}
	fmt.Printf("# %s\n", machine(*root))
	start := processorTimes()
	g.point("curve", "x", "y", "unit")
	var invalid error
	for _, group := range []struct {
		name string
		run  func(context.Context) error
	}{{"clients", g.clients}, {"members", g.members}, {"answers", g.answers}, {"records", g.reports}, {"watchers", g.watchers}} {
		if *only != "" && *only != group.name {
			continue
		}
		if err := group.run(ctx); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			fmt.Printf("# %s, invalid from here on: %s\n", group.name, oneLine(err))
			invalid = errors.Join(invalid, fmt.Errorf("%s: %w", group.name, err))
		}
	}
	fmt.Printf("# other guests of the host had %.1f %% of the processors\n", 100*processorTimes().since(start).stolen)
	return errors.Join(invalid, g.out.Error())
}

type grower struct {
	*bencher
	quick bool
	most  int
	out   *csv.Writer
}

func (g *grower) point(curve, x, y, unit string) {
	_ = g.out.Write([]string{curve, x, y, unit}) // errors stay in the writer
	g.out.Flush()
}

func (g *grower) add(curve string, x int, y float64, unit string) {
	g.point(curve, strconv.Itoa(x), strconv.FormatFloat(y, 'g', 4, 64), unit)
}

// upTo returns the points of a curve, or only the first two in a quick run.
func (g *grower) upTo(points ...int) []int {
	if g.quick {
		return points[:2]
	}
	return points
}

// measured is a run of sessions. It returns the outcome and the daemon's CPU in us a session.
func (g *grower) measured(ctx context.Context, a *arena, clients, sessions int) (o outcome, cpu float64, err error) {
	if _, err := whole(a.load(ctx, plan{Clients: clients, Sessions: max(clients, sessions/4)})); err != nil {
		return o, 0, err
	}
	before := a.daemon.cpu()
	o, err = whole(a.load(ctx, plan{Clients: clients, Sessions: sessions}))
	return o, (a.daemon.cpu() - before) / float64(max(o.Sessions, 1)), err
}

// warmReference runs R1 twice, and returns what the second run took.
func warmReference(ctx context.Context, a *arena, clients, sessions int, args ...string) (outcome, error) {
	if _, err := a.reference(ctx, plan{Clients: clients, Sessions: max(clients, sessions/4)}, args...); err != nil {
		return outcome{}, err
	}
	return a.reference(ctx, plan{Clients: clients, Sessions: sessions}, args...)
}

func (g *grower) clients(ctx context.Context) error {
	a, err := g.arena(ctx, 4, nil)
	if err != nil {
		return err
	}
	defer a.stop()
	for _, n := range g.upTo(1, 8, 64, 256, 1000) {
		sessions := min(3000, 150*n)
		if g.quick {
			sessions = 4 * n
		}
		o, cpu, err := g.measured(ctx, a, n, sessions)
		if err != nil {
			return err
		}
		one, err := warmReference(ctx, a, n, sessions)
		if err != nil {
			return err
		}
		g.add("clients: sessions/s", n, float64(o.Sessions)/o.Seconds, "sessions/s")
		g.add("clients: sessions/s of R1", n, float64(one.Sessions)/one.Seconds, "sessions/s")
		g.add("clients: CPU", n, cpu, "us a session")
		g.add("clients: CPU of R1", n, one.CPU, "us a session")
	}
	return nil
}

func (g *grower) members(ctx context.Context) error {
	for _, n := range g.upTo(2, 4, 8, 16) {
		err := g.with(ctx, []string{"-members", strconv.Itoa(n)}, n, func(a *arena) error {
			sessions := g.some(8000 / (n * n))
			_, cpu, err := g.measured(ctx, a, 16, sessions)
			if err != nil {
				return err
			}
			seen, err := a.provider.stats()
			if err != nil {
				return err
			}
			one, err := warmReference(ctx, a, 16, sessions, "-members", strconv.Itoa(n),
				"-review", strconv.FormatInt(seen.Bytes[review], 10), "-synthesis", strconv.FormatInt(seen.Bytes[synthesis], 10))
			if err != nil {
				return err
			}
			g.add("members: CPU", n, cpu, "us a session")
			g.add("members: CPU of R1", n, one.CPU, "us a session")
			g.add("members: prompts", n, float64(int64(n)*(seen.Bytes[answer]+seen.Bytes[review])+seen.Bytes[synthesis])/1000, "KB a session")
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *grower) some(n int) int {
	if g.quick {
		return 16
	}
	return max(400, n) // With 32 sessions (two waves of 16 clients), the daemon's first calls weighed too much.
}

func (g *grower) answers(ctx context.Context) error {
	for _, kb := range g.upTo(2, 20, 200) {
		err := g.with(ctx, []string{"-answer", strconv.Itoa(1000 * kb)}, 4, func(a *arena) error {
			_, cpu, err := g.measured(ctx, a, 16, g.some(800/kb))
			if err != nil {
				return err
			}
			g.add("answers of KB: CPU", kb, cpu, "us a session")
			g.add("answers of KB: peak memory", kb, float64(memory(a.daemon.cmd.Process.Pid, "VmHWM"))/1024, "MiB at 16 clients")
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// with is a call of f with an arena that has a provider, and a daemon with this number of members.
func (g *grower) with(ctx context.Context, provider []string, members int, f func(*arena) error) error {
	a, err := g.arena(ctx, members, provider)
	if err != nil {
		return err
	}
	defer a.stop()
	return f(a)
}

func (g *grower) reports(ctx context.Context) error {
	source, err := g.simulated(ctx, 1000)
	if err != nil {
		return err
	}
	file := filepath.Join(g.dir, "records.jsonl")
	for n := 1000; n <= g.most; n *= 10 {
		if g.quick && n > 10_000 {
			break
		}
		if err := multiply(source, file, n); err != nil {
			return err
		}
		e, err := spent(ctx, g.councild, "bias-report", "--input", file, "--days", "0")
		if err != nil {
			return err
		}
		g.add("records: newest 100 sessions", n, e.wall.Seconds()*1000, "ms")
		g.add("records: memory of the newest 100", n, float64(e.peakKB)/1024, "MiB")
		e, err = spent(ctx, g.councild, "bias-report", "--input", file, "--days", "0", "--sessions", "0")
		if err != nil {
			return err
		}
		g.add("records: all", n, e.wall.Seconds()*1000, "ms")
		g.add("records: memory of all", n, float64(e.peakKB)/1024, "MiB")
		e, err = spent(ctx, g.self, "read", "-file", file)
		if err != nil {
			return err
		}
		g.add("records: R2", n, e.wall.Seconds()*1000, "ms")
		e, err = spent(ctx, g.self, "read", "-raw", "-file", file)
		if err != nil {
			return err
		}
		g.add("records: R3", n, e.wall.Seconds()*1000, "ms")
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

// watch follows the events of a session, and reports whether it saw the complete session. There are many watchers, so
// each keeps only a few KB of the events.
func watch(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	complete := []byte(`"status":"complete"`)
	seen, buffer, kept := false, make([]byte, 4096), 0
	for {
		n, err := resp.Body.Read(buffer[kept:])
		text := buffer[:kept+n]
		seen = seen || bytes.Contains(text, complete)
		kept = copy(buffer, text[max(0, len(text)-len(complete)):]) // The text may continue in the next piece.
		if err != nil {
			return seen && errors.Is(err, io.EOF)
		}
	}
}

// watchers measures the cost of clients that follow one session.
func (g *grower) watchers(ctx context.Context) error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	for _, n := range g.upTo(1, 10, 100, 1000, 10_000) {
		if uint64(n)+256 > files.Cur { // the runtime has raised it to the hard limit
			fmt.Printf("# watchers: %d need more open files than the hard limit of %d\n", n, files.Cur)
			break
		}
		err := g.with(ctx, []string{"-dwell", "3s", "-chunks", "100"}, 4, func(a *arena) error {
			client := pool()
			text, err := ask(ctx, client, http.MethodPost, a.daemon.url+"/v1/council", `{"query":"What does it cost to watch?","background":true}`)
			if err != nil {
				return err
			}
			_, id, _ := strings.Cut(text, `"session_id":"`)
			id, _, _ = strings.Cut(id, `"`)
			idle, before := memory(a.daemon.cmd.Process.Pid, "VmRSS"), a.daemon.cpu()
			var failed atomic.Int64
			var all sync.WaitGroup
			begin := time.Now()
			for range n {
				all.Go(func() {
					if !watch(ctx, client, a.daemon.url+"/v1/council/"+id+"/events") {
						failed.Add(1)
					}
				})
			}
			all.Wait()
			if failed.Load() > 0 {
				return fmt.Errorf("%d of %d watchers did not see the end", failed.Load(), n)
			}
			g.add("watchers: time of the session", n, time.Since(begin).Seconds(), "s, of which the models take 9")
			g.add("watchers: CPU", n, (a.daemon.cpu()-before)/1e6, "s in all")
			g.add("watchers: memory", n, float64(memory(a.daemon.cmd.Process.Pid, "VmHWM")-idle)/1024, "MiB in all")
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
