package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/store"
)

// recordFile has the flags of commands that read records.
type recordFile struct {
	Input []string `help:"Record file to read, or a pattern as 'records-*.jsonl' (repeatable, read as one); default LLM_COUNCIL_BIAS_STORE." placeholder:"FILE" sep:"none"`

	Sessions *int   `help:"How many of the newest sessions to look at, 0 for all; default LLM_COUNCIL_BIAS_WINDOW_SESSIONS." placeholder:"N"`
	Days     *int   `help:"How many days to look back, 0 for all; default LLM_COUNCIL_BIAS_WINDOW_DAYS." placeholder:"N"`
	Since    day    `help:"Only sessions that started then or later: a day in UTC, or RFC 3339." placeholder:"TIME"`
	Until    day    `help:"Only sessions that started before then." placeholder:"TIME"`
	Reviewer string `help:"Only what this reviewer scored; also the beginning of several names, as openai/." placeholder:"MEMBER"`
	Model    string `help:"Only how this member was scored; also the beginning of several names." placeholder:"MEMBER"`
	Category string `help:"Only sessions of this category: ${categories}." enum:",coding,math,writing,reasoning,knowledge,other" default:""`
	Language string `help:"Only sessions of this language: two lower-case letters of ISO 639-1." placeholder:"CODE"`

	ConfigVersion string `help:"Only sessions of this council_config_version." placeholder:"VERSION"`
	Source        string `help:"With judge, only answers that were given to judges. Without it, they are left out." enum:",judge" default:""`
	ModelVersion  string `help:"Only records whose reviewer or candidate was served as this version." placeholder:"VERSION"`
}

// load returns the settings and the paths of the record stores to read.
func (f recordFile) load() (config.Config, []string, error) {
	cfg, err := config.Load()
	if err != nil {
		return cfg, nil, usageError{err}
	}
	if f.Sessions != nil && *f.Sessions < 0 || f.Days != nil && *f.Days < 0 {
		return cfg, nil, usageError{errors.New("--sessions and --days take a whole number, 0 for no limit")}
	}
	if f.Language != "" && !council.IsLanguage(f.Language) {
		return cfg, nil, usageError{fmt.Errorf("--language %q is not a language code: "+
			"use two lower-case letters of ISO 639-1, such as en", f.Language)}
	}
	if len(f.Input) == 0 {
		return cfg, []string{cfg.BiasStore}, nil
	}
	paths, err := recordFiles(f.Input)
	return cfg, paths, err
}

// query returns the query of the flags.
func (f recordFile) query() bias.Query {
	return bias.Query{
		Sessions:      f.Sessions,
		Days:          f.Days,
		Since:         f.Since.Time,
		Until:         f.Until.Time,
		Reviewer:      f.Reviewer,
		Model:         f.Model,
		ConfigVersion: f.ConfigVersion,
		ModelVersion:  f.ModelVersion,
		Source:        f.Source,
		Category:      f.Category,
		Language:      f.Language,
	}
}

// recordFiles returns the record stores that the inputs name, each store once. An input is a path or a pattern.
// recordFiles leaves out lock files and temporary files that match a pattern. A match that is a segment (a closed part
// of a store) stands for its store.
func recordFiles(inputs []string) ([]string, error) {
	var paths []string
	for _, input := range inputs {
		err := store.Find(input)
		if err == nil {
			paths = append(paths, input)
			continue
		}
		if info, statErr := os.Stat(input); statErr == nil && info.IsDir() {
			return nil, fmt.Errorf("reading the records: %s is a directory: name its files, as in --input '%s'",
				input, filepath.Join(input, "*.jsonl"))
		}
		if !strings.ContainsAny(input, "*?[") {
			return nil, fmt.Errorf("reading the records: %w: name a file of records with --input", err)
		}
		matches, err := filepath.Glob(input)
		if err != nil {
			return nil, usageError{fmt.Errorf("--input %q is not a pattern: %w", input, err)}
		}
		matches = slices.DeleteFunc(matches, func(path string) bool {
			return sidecar.MatchString(path) || store.Find(path) != nil
		})
		// A segment stands for its store, even if the data file of the store is missing.
		for i, path := range matches {
			matches[i] = segmentOf.ReplaceAllString(path, "")
		}
		if len(matches) == 0 {
			return nil, fmt.Errorf("no file matches %s: name a file of records with --input", input)
		}
		paths = append(paths, matches...)
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

var (
	sidecar   = regexp.MustCompile(`\.(lock|tmp)$`)
	segmentOf = regexp.MustCompile(`\.[0-9]{6}(\.zst)?$`)
)

// writeIndented writes a value as indented JSON.
func writeIndented(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// writeAs writes a document in a format: json, csv, html or text. The last three arguments make csv, html and text.
func writeAs[T any](w io.Writer, format string, document T, csv, html, text func(T) []byte) (err error) {
	switch format {
	case "json":
		err = writeIndented(w, document)
	case "csv":
		_, err = w.Write(csv(document))
	case "html":
		_, err = w.Write(html(document))
	default:
		_, err = terminal{w}.Write(text(document))
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

type biasReportCmd struct {
	recordFile
	Split   string `help:"Describe the sessions of each category or language separately." enum:",category,language" default:""`
	Format  string `help:"Form of the report: ${enum}." enum:"text,json,csv,html" default:"text"`
	Monitor bool   `help:"Say whether bias has begun, over all sessions of the council since it last changed: you may look each morning."`

	Evidence []string `help:"Evidence file to read (repeatable, read as one); default evidence.jsonl in LLM_COUNCIL_DATA_DIR, and none with --input." placeholder:"FILE" sep:"none"`

	FailOn  []string `name:"fail-on" help:"Exit with 3 if the report finds one of these kinds, or with --monitor if one raises an alarm: favour, level (a reviewer scores higher or lower than the others), change, or several. bias means favour." placeholder:"A,B"`
	Verbose bool     `help:"Show the reviewers' profiles and the positions in full."`
}

// Run prints the bias report or its monitor. Its error is a findingError if the report has a finding that --fail-on
// names.
func (c *biasReportCmd) Run(ctx context.Context, std IO) error {
	cfg, paths, err := c.load()
	if err != nil {
		return err
	}
	failOn, err := c.kinds()
	if err != nil {
		return err
	}
	if c.Monitor {
		return c.monitor(ctx, std, cfg, paths, failOn)
	}
	q := c.query()
	q.Split = c.Split
	var r render.FullReport
	if r.Report, err = daemon.Report(ctx, cfg, paths, q); err != nil {
		return err
	}
	evidence, err := c.evidenceFiles(cfg)
	if err != nil {
		return err
	}
	if r.Evidence, err = daemon.Evidence(ctx, evidence, q); err != nil {
		return err
	}
	err = writeAs(std.Stdout, c.Format, r, func(r render.FullReport) []byte { return render.CSV(r.Report) }, render.HTML,
		func(r render.FullReport) []byte { return render.Text(r, c.Verbose, config.SettingNames()) })
	if err != nil || len(failOn) == 0 {
		return err
	}
	if r.Status == bias.StatusCollecting {
		_, _ = fmt.Fprintf(std.Stderr, "councild: no verdict: %d more sessions are needed, so --fail-on found nothing\n",
			r.SessionsNeeded)
	}
	if found := foundIn(r.Report, failOn); len(found) > 0 {
		return findingError{fmt.Errorf("found: %s", strings.Join(found, ", "))}
	}
	return nil
}

// foundIn returns the names of a report's findings of the given kinds.
func foundIn(r bias.Report, kinds []bias.Kind) (found []string) {
	for _, m := range r.Metrics {
		if m.Found() && slices.Contains(kinds, m.Kind) {
			found = append(found, m.Name)
		}
	}
	if slices.Contains(kinds, bias.KindChange) && slices.ContainsFunc(r.ChangePoints, bias.ChangePoint.Found) {
		found = append(found, "change_points")
	}
	return found
}

// kinds returns the kinds of metrics that --fail-on names.
func (c *biasReportCmd) kinds() ([]bias.Kind, error) {
	var kinds []bias.Kind
	for _, word := range c.FailOn {
		switch word {
		case "favour", "bias":
			kinds = append(kinds, bias.KindFavour)
		case "level":
			kinds = append(kinds, bias.KindLevel)
		case "change":
			kinds = append(kinds, bias.KindChange)
		default:
			return nil, usageError{fmt.Errorf("--fail-on does not know %q: "+
				"use favour, level, change, or several with commas", word)}
		}
	}
	return kinds, nil
}

// evidenceFiles returns the paths of the evidence files to read. Without --evidence and --input, it returns the file of
// the settings, if there is one.
func (c *biasReportCmd) evidenceFiles(cfg config.Config) ([]string, error) {
	for _, path := range c.Evidence {
		if err := store.Find(path); err != nil {
			return nil, fmt.Errorf("reading the evidence: %w", err)
		}
	}
	if path, _ := cfg.EvidenceFile(); path != "" && len(c.Evidence) == 0 && len(c.Input) == 0 {
		return []string{path}, nil
	}
	return c.Evidence, nil
}

// monitor prints the monitor. Its error is a findingError if the monitor raises an alarm that --fail-on names.
func (c *biasReportCmd) monitor(
	ctx context.Context, std IO, cfg config.Config, paths []string, failOn []bias.Kind,
) error {
	if c.Sessions != nil || c.Days != nil || c.Split != "" {
		return usageError{errors.New("--monitor takes all sessions: " +
			"--sessions, --days and --split do not go with it, --since does")}
	}
	evidence, err := c.evidenceFiles(cfg)
	if err != nil {
		return err
	}
	m, err := daemon.Monitor(ctx, cfg, paths, evidence, c.query())
	if err != nil {
		return err
	}
	err = writeAs(std.Stdout, c.Format, m, render.MonitorCSV, render.MonitorHTML,
		func(m bias.Monitor) []byte { return render.Monitor(m, config.SettingNames()) })
	if err != nil || len(failOn) == 0 {
		return err
	}
	if m.Status == bias.StatusCollecting {
		_, _ = fmt.Fprintf(std.Stderr, "councild: no alarm yet: %d more sessions are needed, so --fail-on found nothing\n",
			m.SessionsNeeded)
	}
	if slices.ContainsFunc(m.Watched, func(w bias.Watched) bool { return w.Found && slices.Contains(failOn, w.Kind) }) {
		return findingError{errors.New(m.Headline)}
	}
	return nil
}

// day is a point in time on the command line.
type day struct{ time.Time }

// UnmarshalText parses a day in UTC, or a time with its offset as in RFC 3339.
func (d *day) UnmarshalText(text []byte) (err error) {
	d.Time, err = council.ParseTime(string(text))
	return err
}

type leaderboardCmd struct {
	recordFile
	Format string `help:"Form of the leaderboard: ${enum}." enum:"text,json,csv,html" default:"text"`
}

// Run prints the leaderboard.
func (c *leaderboardCmd) Run(ctx context.Context, std IO) error {
	cfg, paths, err := c.load()
	if err != nil {
		return err
	}
	l, err := daemon.Leaderboard(ctx, cfg, paths, c.query())
	if err != nil {
		return err
	}
	return writeAs(std.Stdout, c.Format, l, render.LeaderboardCSV, render.LeaderboardHTML,
		func(l bias.Leaderboard) []byte { return render.Leaderboard(l, config.SettingNames()) })
}
