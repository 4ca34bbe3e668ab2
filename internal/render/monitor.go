package render

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
)

//go:embed monitor.html
var monitorHTML string

var monitorPage = page(monitorHTML) //nolint:gochecknoglobals // parsed once

// Monitor returns a monitor as text in at most 80 columns.
func Monitor(m bias.Monitor, names council.SettingNames) []byte {
	var b bytes.Buffer
	b.WriteString(wrap(m.Headline+".", "") + "\n\n")
	if m.Window.Sessions == 0 {
		b.WriteString(noSessions(names, m.Filters))
	} else {
		fmt.Fprintf(&b, "%d sessions, %d records, %s to %s\n", m.Window.Sessions, m.Window.Records,
			m.Window.Start.Format(time.DateOnly), m.Window.End.Format(time.DateOnly))
	}
	for _, note := range monitorNotes(m) {
		b.WriteString(wrap(note, "") + "\n")
	}
	const header = "HEADLINE\tESTIMATE\t95 % AT ANY TIME\tLOG E\tSESSIONS\tALARM"
	writeTable(&b, "\n", header, m.Watched, func(w bias.Watched) string {
		return strings.Join([]string{
			watchedLabel(w), estimated("%.2f", w), watchedInterval("%.2f", w),
			figure("%.1f", w.LogE), strconv.Itoa(w.Clusters), alarm(w),
		}, "\t")
	})
	for _, w := range m.Watched {
		if w.Found || w.LogE == nil {
			b.WriteString("\n" + watchedLabel(w) + "\n" + wrap(w.Reason, "  ") + "\n")
		}
	}
	writeFilters(&b, m.Filters)
	writeSkipped(&b, m.Skipped)
	return b.Bytes()
}

// MonitorCSV returns the headlines of a monitor as one table (RFC 4180) whose columns have the field names of the
// JSON form. An undefined figure is an empty cell.
func MonitorCSV(m bias.Monitor) []byte {
	rows := append(make([][]string, 0, 1+len(m.Watched)), []string{
		"headline", "kind", "subject", "unit", "point_estimate", "ci_lower", "ci_upper", "log_e",
		"members", "clusters", "delta", "found",
		"alarm", "reason",
	})
	for _, w := range m.Watched {
		rows = append(rows, []string{
			w.Name, string(w.Kind), Cell(w.Subject), w.Unit, number(w.PointEstimate),
			number(w.CILower), number(w.CIUpper), number(w.LogE),
			strconv.Itoa(w.Members), strconv.Itoa(w.Clusters), number(w.Delta), strconv.FormatBool(w.Found),
			strconv.FormatBool(w.Alarm), w.Reason,
		})
	}
	return table(rows)
}

// MonitorHTML returns a monitor as one self-contained HTML page. Like [HTML], it panics if the template does not fit.
func MonitorHTML(m bias.Monitor) []byte {
	var b bytes.Buffer
	if err := monitorPage.Execute(&b, m); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// monitorNotes says what a monitor looks at, and when it raises an alarm.
func monitorNotes(m bias.Monitor) []string {
	var notes []string
	if m.OtherCouncils > 0 {
		notes = append(notes, fmt.Sprintf("Council %s. %s of other councils are left out: "+
			"to watch one of them, use --config-version.", clip(m.ConfigVersion), counted(m.OtherCouncils, "session")))
	}
	if m.RetentionDays != nil {
		notes = append(notes, fmt.Sprintf("Records older than %d days are deleted: "+
			"the monitor then starts again from the oldest records that are left.", *m.RetentionDays))
	}
	if m.Status == bias.StatusCollecting {
		return notes
	}
	favours := only(m.Watched, func(w bias.Watched) bool { return w.Kind == bias.KindFavour })
	return append(notes, fmt.Sprintf("An alarm needs log e = %.1f (less if several headlines rise) and an effect that is large enough to count. "+
		"You may look as often as you like: at most %.0f %% of councils without a favour ever see an alarm. Harshness raises no alarm, "+
		"because ranks do not depend on it.", math.Log(float64(len(favours))/m.Level), 100*m.Level))
}

func watchedLabel(w bias.Watched) string {
	return label(bias.Metric{Name: w.Name, Topic: bias.Topic(w.Name), Subject: w.Subject})
}

func alarm(w bias.Watched) string {
	switch {
	case w.Alarm:
		return "ALARM"
	case w.Found:
		return finding(w)
	default:
		return "-"
	}
}

// finding returns the word for a finding that is no alarm.
func finding(w bias.Watched) string { return string(w.Kind.Found()) }

// estimated returns the estimate of a headline, with its sign unless it is a share.
func estimated(format string, w bias.Watched) string {
	return figure(signedUnlessShare(format, w), w.PointEstimate)
}

func watchedInterval(format string, w bias.Watched) string {
	return interval(signedUnlessShare(format, w), w.CILower, w.CIUpper)
}

// signedUnlessShare returns a format that prints the sign too if 0 means no effect.
func signedUnlessShare(format string, w bias.Watched) string {
	if w.Delta == nil {
		return format
	}
	return strings.Replace(format, "%", "%+", 1)
}
