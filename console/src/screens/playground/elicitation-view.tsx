/** Questions of MCP servers as forms, beside the calls that wait for them. */
import { useMemo, useState } from "preact/hooks";
import type { Elicitation } from "../../api/types";
import { QuestionForm, type Question } from "../../components/question-form";
import { asError } from "../../components/resource";
import type { Answer, OpenElicitations } from "./elicitations";

interface ElicitationListProps {
  questions: readonly Elicitation[];
  onAnswer: OpenElicitations["answer"];
}

export function ElicitationList({ questions, onAnswer }: ElicitationListProps) {
  return (
    <>
      {questions.map((question) => (
        <ElicitationView key={question.id} question={question} onAnswer={(answer) => onAnswer(question, answer)} />
      ))}
    </>
  );
}

interface ElicitationViewProps {
  question: Elicitation;
  onAnswer: (answer: Answer) => Promise<void>;
}

function ElicitationView({ question, onAnswer }: ElicitationViewProps) {
  const [failure, setFailure] = useState("");
  const [isSending, setIsSending] = useState(false);
  const asked = useMemo<[string, Question][]>(() => [[question.id, readQuestion(question)]], [question]);
  const send = async (answer: Answer) => {
    setIsSending(true);
    setFailure("");
    try {
      await onAnswer(answer);
    } catch (error) {
      setFailure(asError(error).message);
      setIsSending(false);
    }
  };
  return (
    <QuestionForm
      questions={asked}
      server={question.server_label}
      canCancel
      takesFocus
      failure={failure}
      isSending={isSending}
      onAnswer={(answers) => void send(answers[question.id] ?? { action: "cancel" })}
    />
  );
}

/** A question as the form knows it: with the names of the Model Context Protocol. */
function readQuestion(question: Elicitation): Question {
  const { mode, message } = question;
  return {
    params: {
      mode,
      message,
      ...(question.requested_schema ? { requestedSchema: question.requested_schema } : {}),
      ...(question.url === undefined ? {} : { url: question.url }),
    },
  };
}
