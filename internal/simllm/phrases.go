package simllm

import (
	"crypto/sha256"
	"strings"
)

// phrases is the bank of sentences from which models write texts.
type phrases struct {
	points  [5][]string    // the points of each grade; grade 0 is the worst
	grades  map[string]int // the grade of each point
	filler  []string
	style   [][]string // for each part of a signature, the texts to choose from
	opinion [][]string // the sentences for each tier of scores, the lowest tier first
	length  []string   // the sentences for answers shorter than usual, of usual length, and longer
	closing []string
	stop    map[string]bool // words that say nothing about the subject of a question
}

func newPhrases() *phrases {
	p := &phrases{
		grades:  map[string]int{},
		filler:  lines(fillerText),
		style:   blocks(styleText),
		opinion: blocks(opinionText),
		length:  lines(lengthText),
		closing: lines(closingText),
		stop:    map[string]bool{},
	}
	for grade, points := range blocks(pointsText) {
		p.points[grade] = points
		for _, point := range points {
			p.grades[point] = grade
		}
	}
	for word := range strings.FieldsSeq(stopText) {
		p.stop[word] = true
	}
	return p
}

// signature returns the sentence by which a reviewer recognises the texts of a model. It depends only on the name,
// so it is the same on every server.
func (p *phrases) signature(model string) string {
	sum := sha256.Sum256([]byte("signature\x00" + model))
	part := func(i int) string { return p.style[i][int(sum[i])%len(p.style[i])] }
	return part(0) + ", " + part(1) + ", " + part(2) + " " + part(3) + "."
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

func blocks(text string) [][]string {
	var all [][]string
	for block := range strings.SplitSeq(text, "\n\n") {
		all = append(all, lines(block))
	}
	return all
}

// pointsText holds the points that an answer can make about a key word, from the worst grade to the best. Points of
// all grades have about the same length.
const pointsText = `
it always works out in the end, so there is no real need to check anything.
simply do whatever comes to mind first, since the choice makes no difference.
more of it is better in every case, without any exception or upper limit.
this never goes wrong, and whoever says otherwise has not understood it.
the opposite of the common advice is true, for reasons that are obvious.
skip the details, because the details are what makes it look complicated.
one number settles it for everybody, and that number needs no explanation.
nothing has to be known about it beforehand, as it all explains itself.

there are many views on this, and it is hard to say in general which is better.
this is often discussed, and much depends on the situation one happens to be in.
it can help to read a little more on the subject before making up one's mind.
some people do it one way, some another, and both seem to be fairly content.
good results are possible, as long as everything is set up in the right manner.
it is an important part of the whole and should be treated with suitable care.
a bit of experience is useful here, and most of it comes with time and practice.
things change quickly in this field, so any advice may soon need another look.

the usual approach works here in most cases, though the details deserve a look.
follow the common practice first and adjust it when it turns out not to fit.
there are a few options with different strengths, and several are acceptable.
some planning helps, and it is sensible to review the outcome after a while.
a short list of steps is normally enough, provided that it is kept up to date.
existing guidance covers the main points and can be adapted without trouble.
it is reasonable to begin with the simple case and to see where that leads.
both sides have merit, and a balanced choice is usually somewhere in between.

work from a concrete example first and generalise only once it has been checked.
write down the main trade-off, decide which side matters more, and say why.
prefer the well understood approach here unless a measurement speaks against it.
break it into parts that can be checked one by one, and begin with the riskiest.
look at how it fails as well as how it works, and plan for the common failure.
agree on what a good outcome looks like before any of the details are settled.
keep the first version small, see how it behaves, and extend it from there.
ask what happens at the limits, because that is where most surprises come from.

state the assumption, test it on the smallest real case, keep what survives.
measure before and after, name the margin of error, stop once it is good enough.
start from the requirement, list what would break it, guard against the likeliest.
give the exact condition under which this holds, and a case on either side of it.
compare two workable options by effort, risk and reversibility, and pick one.
check the first result against an independent source before building on it.
separate what is known from what is guessed, and settle the largest guess first.
plan the way back before the way forward, so that a wrong turn stays cheap.
`

const fillerText = `
It is worth keeping the purpose in view while the single steps are worked out.
Most of the effort tends to go into preparation, and far less into the step itself.
What looks like one question here is often two, and they can be answered in turn.
A note on what was decided, and when, saves a good deal of time later on.
The order of the steps matters less than finishing each of them properly.
Where time is short, the first half of the work usually brings most of the benefit.
Circumstances differ, so the wording above should be read with the case at hand in mind.
It also helps to say early what is out of scope, so that nobody waits for it.
Several of these considerations overlap, which is normal and does no harm.
If two of them pull in different directions, the one closer to the goal should win.
A second reading after a pause tends to bring out what the first one passed over.
There is rarely a need to settle everything at once, and some things settle themselves.
The vocabulary varies from place to place, although the idea behind it is the same.
Small corrections along the way cost less than a large one at the very end.
It is easy to overlook the parts that work, simply because they cause no trouble.
The same reasoning carries over to neighbouring questions with little change.
None of this needs special equipment, only some patience and a clear record.
Anyone who has done this before will recognise the pattern from other occasions.
A rough estimate is often enough to see which of the branches can be dropped.
The remaining details follow from the choice made at the beginning.
Whether the result is satisfactory shows best once it has been in use for a while.
It can be useful to explain the plan to a colleague before carrying it out.
Looking at a finished example is often quicker than reading a general description.
In the end the outcome counts, and the way towards it can be adjusted.
Some of the terms are used loosely in practice, and it pays to ask what is meant.
A decision that is easy to undo deserves less thought than one that is not.
The first attempt is rarely the final one, and it does not have to be.
Where several people are involved, a short summary keeps everybody on the same page.
The effort grows with the number of exceptions, so it is worth keeping them few.
Two of the steps can be done side by side if there is enough room for both.
It is usually clear within a short time whether the direction is right.
Established habits can stand in the way, even where the new way is plainly simpler.
A little slack in the plan absorbs most of what nobody could have foreseen.
What worked last time is a reasonable guess, as long as it stays a guess.
Questions that remain open can be parked in a list and taken up again later.
The more often a step is repeated, the more it pays to make it simple.
It is tempting to polish the parts that are visible and to neglect the others.
A deadline helps, if only because it ends the search for something even better.
Most of this sounds more complicated than it turns out to be when it is done.
The boundaries between these items are fluid, and nothing depends on them.
`

const styleText = `
In short
Broadly speaking
At first sight
On reflection
Put simply
By and large
To begin with
All things considered

taking the request as it stands
without assuming too much
leaving special cases aside
with the usual caveats
going by what was asked
as far as one can tell
keeping to the essentials
seen from the practical side

the points below are
what follows is
the remarks here are
this list is
these notes are
the next lines are
the items below are
the following is

a starting point and no verdict
enough for a first decision
worth checking against your own case
a summary of the main thread
meant to be read together
a plain view of the matter
open to correction
a working draft
`

const opinionText = `
makes claims that do not hold, and somebody who relied on it would be misled.
is confident where it should be careful, and most of its points are unsupported.
does not engage with the substance, and several statements are plainly wrong.

stays vague: it names the subject but gives the reader little to act on.
is not wrong as such, but hardly says anything that the question did not contain.
touches the right topics without ever committing to a usable statement.

is sound on the whole and answers the question, if without much depth.
covers the main points correctly, though some of them remain general.
gives a sensible overview and would serve most readers well enough.

is precise, says how its claims can be checked, and addresses the risks.
stands out by concrete and testable advice, and it is honest about its limits.
goes to the heart of the question and backs each point with a way to verify it.
`

const lengthText = `
It is brief, which leaves some aspects open.
Its length suits the question.
It takes its time, and parts could be tightened.
`

const closingText = `
The structure is easy to follow.
The reasoning can be retraced from start to end.
A worked example would have helped.
The wording is clear throughout.
The emphasis could have been placed better.
Nothing in it goes beyond what was asked.
`

const stopText = `about after again all also and answer any are back because been before being best better between both but can could
describe did does each ever every explain for from get give good had has have having here how into its just know let like list little
make many may more most much must need not one only other our over please question same shall should show some such tell
than that the their them then there these they think this those through two under until use using very want was way ways were what
when where whether which while who why will with within without would you your`
