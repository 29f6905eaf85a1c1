// Unpacks the Chromium of the package @sparticuz/chromium below TMPDIR, and prints the path of its program. The tests
// use it: it needs neither root nor a download of its own.
import chromium from "@sparticuz/chromium";

// Lets the package unpack the system libraries as well, for machines that have no browser libraries.
process.env.AWS_LAMBDA_JS_RUNTIME = "nodejs22.x";
console.log(await chromium.executablePath());
