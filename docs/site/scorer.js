// How the search orders what it finds: a page that explains a word comes before the entries of the reference.
"use strict";

var Scorer = {
  score: ([docname, , anchor, , score]) => {
    const isPage = docname.startsWith("guides/") || docname.startsWith("start/");
    if (docname.startsWith("reference/")) {
      return score - 15;
    }
    return isPage && !anchor ? score + 10 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
