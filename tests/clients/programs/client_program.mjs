// What every JavaScript program in this folder shares: the questions, the client's own function, what is printed.
// The programs run in folders that have nothing but the client: `node NAME.mjs BASE_URL MODEL QUESTION...`.
export const [BASE_URL, MODEL, ...QUESTIONS] = process.argv.slice(2);
export const API_KEY = "hd-anybody";
export const INSTRUCTIONS = "Use your tools.";

export const getTime = async ({ place }) => `noon in ${place}`;

// Ask each question plain and streamed, and print the answers. An error of the client is its answer.
export async function askAll(ask, askStreamed) {
  const answers = {};
  for (const question of QUESTIONS) {
    answers[question] = await answer(ask, question);
    answers[`${question}, streamed`] = await answer(askStreamed, question);
  }
  console.log(JSON.stringify(answers));
}

async function answer(ask, question) {
  try {
    return await ask(question);
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}
