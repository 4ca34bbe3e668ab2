package spend

import (
	"errors"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// USD is an amount of money in whole picodollars (10^-12 US dollars), from 0 to about nine million dollars. As text
// and in JSON it is a number of dollars.
type USD int64

// Dollar is one US dollar.
const Dollar USD = 1e12

const largest = USD(math.MaxInt64)

// Plus returns the sum of two amounts, or the largest amount if the sum would be larger.
func (a USD) Plus(b USD) USD {
	if a > largest-b {
		return largest
	}
	return a + b
}

// Times returns n times the amount, or the largest amount if the result would be larger. Neither factor may be
// negative.
func (a USD) Times(n int64) USD { return a.scaled(n, 1) }

// scaled returns a*numerator/denominator, rounded up, or the largest amount if the result would be larger. No
// argument may be negative, and the denominator must not be zero.
func (a USD) scaled(numerator, denominator int64) USD {
	hi, lo := bits.Mul64(uint64(a), uint64(numerator)) //nolint:gosec // neither is negative
	lo, carry := bits.Add64(lo, uint64(denominator)-1, 0)
	hi += carry
	if hi >= uint64(denominator) { //nolint:gosec // it is positive
		return largest
	}
	quotient, _ := bits.Div64(hi, lo, uint64(denominator)) //nolint:gosec // it is positive
	return USD(min(quotient, math.MaxInt64))
}

// share returns a percentage of the amount, rounded down.
func (a USD) share(percent int64) USD { return a/100*USD(percent) + a%100*USD(percent)/100 }

// String returns the amount in dollars, exactly.
func (a USD) String() string { return decimal(int64(a), 12) }

// Float64 returns the amount in dollars, as the nearest float64.
func (a USD) Float64() float64 {
	f, _ := strconv.ParseFloat(a.String(), 64) // it is a number
	return f
}

// FromFloat converts a number of dollars to the nearest picodollar. NaN and negative numbers become 0. A number
// that is too large becomes the largest amount.
func FromFloat(dollars float64) USD {
	if !(dollars > 0) { // also NaN
		return 0
	}
	a, err := ParseUSD(strconv.FormatFloat(dollars, 'g', -1, 64))
	if err != nil {
		return largest
	}
	return a
}

var errNumber = errors.New("is not an amount: write a number of 0 or more, such as 1.25")

// ParseUSD reads a number of dollars, and rounds it to the nearest picodollar. The text of the error has no subject,
// because callers write the quoted text before it.
func ParseUSD(text string) (USD, error) {
	if a, ok := plainUSD(text); ok {
		return a, nil
	}
	r, err := number(text, int64(Dollar))
	if err != nil {
		return 0, err
	}
	r.Add(r, big.NewRat(1, 2))
	return whole(new(big.Int).Quo(r.Num(), r.Denom()))
}

// plainUSD reads an amount in the form that String writes, much faster than number does. ok is false for other
// forms.
func plainUSD(text string) (a USD, ok bool) {
	const digits, most = 12, 6 // the most digits after the decimal point, and before it
	before, after, _ := strings.Cut(text, ".")
	if before == "" || len(before) > most || len(after) > digits || len(before) < len(text) && after == "" {
		return 0, false
	}
	for _, part := range []string{before, after} {
		for _, digit := range []byte(part) {
			if digit < '0' || digit > '9' {
				return 0, false
			}
			a = 10*a + USD(digit-'0')
		}
	}
	for range digits - len(after) {
		a *= 10
	}
	return a, true
}

// number reads a decimal number from 0 to 10^9, and multiplies it by scale. Numbers below 10^-18 become 0.
func number(text string, scale int64) (*big.Rat, error) {
	const longest = 64 // bounds the digits of a number with an exponent
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil, len(text) > longest, strings.ContainsAny(text, "xXpP_"), f < 0, math.IsInf(f, 0), math.IsNaN(f),
		f > 1e9:
		return nil, errNumber
	case f < 1e-18:
		return new(big.Rat), nil
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, errNumber
	}
	return r.Mul(r, new(big.Rat).SetInt64(scale)), nil
}

func whole(n *big.Int) (USD, error) {
	if !n.IsInt64() {
		return 0, errors.New("is too large an amount")
	}
	return USD(n.Int64()), nil
}

// decimal returns n divided by 10^digits, without trailing zeros.
func decimal(n int64, digits int) string {
	text := strconv.FormatInt(n, 10)
	if short := digits + 1 - len(text); short > 0 {
		text = strings.Repeat("0", short) + text
	}
	before := text[:len(text)-digits]
	after := strings.TrimRight(text[len(text)-digits:], "0")
	if after == "" {
		return before
	}
	return before + "." + after
}

// MarshalJSON returns the number of dollars.
func (a USD) MarshalJSON() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalJSON reads a number of dollars.
func (a *USD) UnmarshalJSON(data []byte) error { return a.UnmarshalText(data) }

// UnmarshalText reads a number of dollars.
func (a *USD) UnmarshalText(text []byte) (err error) {
	*a, err = ParseUSD(string(text))
	return err
}
