package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/spend"
)

// signed returns a difference in points, with its sign.
func signed(x float64) string { return fmt.Sprintf("%+.1f", math.Round(1000*x)/10+0) } // adding 0 turns -0 into 0

// limits returns both ends of an interval in points.
func limits(low, high float64) string { return signed(low) + " to " + signed(high) }

// points returns a margin, which is a share, as a text in points.
func points(x float64) string {
	return unit(strconv.FormatFloat(math.Round(1e4*x)/100, 'f', -1, 64))
}

// about returns a share as a text in points. It writes the number of points as rough does.
func about(x float64) string { return unit(rough(100 * x)) }

func unit(number string) string {
	if number == "1" {
		return "1 point"
	}
	return number + " points"
}

// rough returns a number above 0 as text. Below 9.95 it has up to two significant digits, and from there on it is a
// whole number.
func rough(x float64) string {
	if x < 9.95 {
		return fmt.Sprintf("%.2g", x)
	}
	return grouped(int(math.Round(x)))
}

// share returns a share in percent.
func share(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

func shareOrNone(x *float64) string {
	if x == nil {
		return "-"
	}
	return share(*x)
}

// usd returns an amount in US dollars, without the sign of the dollar. It is rounded as [spend.USD.Dollars] rounds it.
func usd(x float64) string {
	text := strings.TrimPrefix(spend.FromFloat(math.Abs(x)).Dollars(), "$")
	if x < 0 {
		return "-" + text
	}
	return text
}

func usdOrNone(x *float64) string {
	if x == nil {
		return "-"
	}
	return usd(*x)
}

// grouped returns a number with commas between thousands.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// counted returns a number with the name of what it counts, such as "1 question".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return grouped(n) + " " + thing + "s"
}

// asked returns the number of questions. If there are fewer clusters, it adds their number.
func asked(questions, clusters int) string {
	if clusters < questions {
		return counted(questions, "question") + " in " + counted(clusters, "cluster")
	}
	return counted(questions, "question")
}

// list returns names as "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// clipped returns the names, each shortened by clip.
func clipped(names []string) []string {
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = clip(name)
	}
	return short
}
