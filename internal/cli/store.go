package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/store"
)

type storeCmd struct {
	Verify   verifyCmd   `cmd:"" help:"Count what is in the record store, and what cannot be read."`
	Export   exportCmd   `cmd:"" help:"Write the records of the record store, closed segments included, as one stream."`
	Publish  publishCmd  `cmd:"" help:"Send the records of the record store to the cluster. You can repeat this: the cluster stores each session once."`
	Events   eventsCmd   `cmd:"" help:"Print the events that the newest sessions would send, and send nothing."`
	Import   importCmd   `cmd:"" help:"Import judgements of other benchmarks, as graded rows or as records for a report."`
	Simulate simulateCmd `cmd:"" help:"Write records of simulated sessions, to try the report."`
}

// storeFile has the argument that names a record store.
type storeFile struct {
	File string `arg:"" optional:"" help:"Record file to read; default LLM_COUNCIL_BIAS_STORE."`
}

// path returns the path in the argument, or the path in the settings if the argument is missing.
func (c storeFile) path() (string, error) {
	cfg, err := config.Load()
	if err != nil {
		return "", usageError{err}
	}
	return cmp.Or(c.File, cfg.BiasStore), nil
}

type verifyCmd struct {
	storeFile
}

// Run prints what each file of the store holds. Its error says that a file cannot be read, a summary is wrong, or a
// line holds no record.
func (c verifyCmd) Run(ctx context.Context, std IO) error {
	path, err := c.path()
	if err != nil {
		return err
	}
	parts, err := store.Verify(ctx, path)
	if err != nil {
		return fmt.Errorf("reading the records: %w", err)
	}
	w := tabwriter.NewWriter(std.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "FILE\tBYTES\tSESSIONS\tRECORDS\tSKIPPED") // Flush returns the errors
	var all store.Part
	skipped := 0
	unreadable := 0
	wrong := 0
	var details strings.Builder
	for _, p := range parts {
		n := 0
		for _, s := range p.Skipped {
			n += s.Count
			lines := strings.Trim(fmt.Sprint(s.Lines), "[]")
			if s.Count > len(s.Lines) {
				lines += " ..."
			}
			fmt.Fprintf(&details, "%s: %s: %d, at line %s\n", p.File, s.Reason, s.Count, lines)
		}
		if p.Err != nil {
			fmt.Fprintf(&details, "%s: cannot be read: %v\n", p.File, p.Err)
			unreadable++
		}
		if p.SummaryErr != nil {
			fmt.Fprintf(&details, "%s: %v\n", p.File, p.SummaryErr)
			wrong++
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", p.File, p.Bytes, p.Sessions, p.Records, n)
		all.Bytes += p.Bytes
		all.Sessions += p.Sessions
		all.Records += p.Records
		skipped += n
	}
	_, _ = fmt.Fprintf(w, "all\t%d\t%d\t%d\t%d\n%s", all.Bytes, all.Sessions, all.Records, skipped, &details)
	if err := w.Flush(); err != nil {
		return err
	}
	switch {
	case unreadable > 0:
		return fmt.Errorf("%d files of the record store cannot be read: see above, and restore them from a "+
			"backup", unreadable)
	case wrong > 0:
		return fmt.Errorf("the summaries of %d files of the record store are wrong: reports may leave out their "+
			"records; see above for what to do", wrong)
	case skipped > 0:
		return errors.New("the record store has lines that hold no record " +
			"(an unterminated one at the very end may be a session being written)")
	}
	return nil
}

type exportCmd struct {
	storeFile
	Format string `help:"Form of the records: ${enum}." enum:"jsonl,csv" default:"jsonl"`
	Out    string `help:"New file to write to; default standard output." placeholder:"FILE"`
}

// Run writes the records to the standard output or to a new file.
func (c exportCmd) Run(ctx context.Context, std IO) error {
	path, err := c.path()
	if err != nil {
		return err
	}
	if c.Out == "" {
		return c.export(ctx, path, std.Stdout, std.Stderr)
	}
	f, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usageError{fmt.Errorf("--out must name a new file: %w", err)}
	}
	return c.exportTo(ctx, path, f, std.Stderr)
}

// exportTo exports into a file and closes the file. It also returns the error of closing, because some file systems
// report a failed write only then.
func (c exportCmd) exportTo(ctx context.Context, path string, out io.WriteCloser, stderr io.Writer) error {
	if err := errors.Join(c.export(ctx, path, out, stderr), out.Close()); err != nil {
		return fmt.Errorf("%s is not whole: %w", c.Out, err)
	}
	return nil
}

// export writes the records of the store at path to out, as the lines of the store or as a table. Records below
// consent level 4 lose their question keys.
func (c exportCmd) export(ctx context.Context, path string, out, stderr io.Writer) (err error) {
	buffered := bufio.NewWriter(out)
	rows := csv.NewWriter(buffered)
	write := func(l store.Line) error {
		_, err := buffered.Write(l.Text)
		return errors.Join(err, buffered.WriteByte('\n'))
	}
	if c.Format == "csv" {
		write = func(l store.Line) error {
			cells, err := row(l)
			return errors.Join(err, rows.Write(cells))
		}
		err = rows.Write(header())
	}
	skipped := 0
	for line, readErr := range store.ReadLines(ctx, path) {
		if _, ok := errors.AsType[*store.LineError](readErr); ok {
			skipped++
			continue
		}
		if err = errors.Join(err, readErr); err == nil {
			err = write(withoutKey(line))
		}
		if err != nil {
			return fmt.Errorf("exporting the records: %w", err)
		}
	}
	if skipped > 0 {
		_, _ = fmt.Fprintf(stderr, "councild: %d lines are not records and were left out; councild store verify "+
			"lists them\n",
			skipped)
	}
	rows.Flush()
	if err := errors.Join(err, rows.Error(), buffered.Flush()); err != nil {
		return fmt.Errorf("exporting the records: %w", err)
	}
	return nil
}

// withoutKey returns a line in the form that may leave the machine. Below consent level 4 it has no question key.
func withoutKey(l store.Line) store.Line {
	if l.QuestionKey == nil || l.ConsentLevel >= consent.LevelResearch {
		return l
	}
	l.Text = bytes.Replace(l.Text, []byte(`"question_key":"`+*l.QuestionKey+`"`), []byte(`"question_key":null`), 1)
	if again, err := store.ParseRecord(l.Text); err != nil || again.QuestionKey != nil {
		// Another program wrote the line, in another form.
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(l.Text, &fields) // the line was parsed as a record before
		maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool {
			return strings.EqualFold(name, "question_key")
		})
		l.Text, _ = json.Marshal(fields) // all values are valid JSON
	}
	l.QuestionKey = nil
	return l
}

type publishCmd struct {
	storeFile
}

// Run sends the records to the cluster. Its error says that no cluster is set or answers, or that sessions could
// not be sent.
func (c publishCmd) Run(ctx context.Context, std IO) error {
	cfg, err := config.Load()
	if err != nil {
		return usageError{err}
	}
	if cfg.NatsURL == "" {
		return usageError{errors.New("no cluster is named: set LLM_COUNCIL_NATS_URL and the other settings as for " +
			"the cluster's daemons")}
	}
	p, err := daemon.PublishStore(ctx, cfg, cmp.Or(c.File, cfg.BiasStore), newLog(std.Stderr, cfg))
	if err != nil {
		return fmt.Errorf("sending the records: %w", err)
	}
	_, err = fmt.Fprintf(std.Stdout, "%d sessions: %d are new on the cluster, %d were there already\n",
		p.Sessions, p.Added, p.Sessions-p.Added-p.Refused)
	if p.Skipped > 0 {
		_, _ = fmt.Fprintf(std.Stderr, "councild: %d lines are not records and were left out; councild store "+
			"verify lists them\n",
			p.Skipped)
	}
	if p.Refused > 0 {
		return fmt.Errorf("%d sessions were not sent; the first: %w", p.Refused, p.Reason)
	}
	return err
}

// header returns the column names of a table of records.
func header() []string {
	columns := council.RecordColumns()
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	return names
}

// row returns a record as a row of a table, with the columns of council.RecordColumns. A null or missing field is an
// empty cell. The cell of the position has the number as it stands in the line, even if the line has an old schema.
// Texts are quoted, so that no spreadsheet reads a text as a formula.
func row(l store.Line) ([]string, error) {
	record, err := json.Marshal(l.BiasMetricRecord)
	if err != nil {
		return nil, err
	}
	var fields, line map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(record, &fields), json.Unmarshal(l.Text, &line)); err != nil {
		return nil, err
	}
	fields["consent_level"] = line["consent_level"]
	fields["position"] = line["position"]
	if l.NShown == 0 {
		delete(fields, "n_shown")
	}
	var cells []string
	for _, c := range council.RecordColumns() {
		cell, err := cellOf(c, fields)
		if err != nil {
			return nil, err
		}
		cells = append(cells, cell)
	}
	return cells, nil
}

// cellOf returns the cell of a column. fields has the fields of the record as JSON.
func cellOf(c council.RecordColumn, fields map[string]json.RawMessage) (string, error) {
	if c.Object != "" {
		object := fields[c.Object]
		fields = nil
		if object != nil {
			if err := json.Unmarshal(object, &fields); err != nil {
				return "", err
			}
		}
	}
	value := fields[c.Field]
	if len(value) == 0 || string(value) == "null" {
		return "", nil
	}
	if !c.Text {
		return string(value), nil
	}
	var text string
	err := json.Unmarshal(value, &text)
	return render.Cell(text), err
}
