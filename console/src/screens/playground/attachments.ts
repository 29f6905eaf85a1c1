/** Pictures and files that a person sends, as parts of a message. */
import type { FilePart, ImagePart } from "../../api/types";
import { PICTURE_TYPES } from "../../components/tool-parts";

export interface Attachment {
  name: string;
  size: number;
  part: ImagePart | FilePart;
}

export async function readAttachment(file: File): Promise<Attachment> {
  const type = file.type || (await guessType(file));
  const url = await readDataURL(new File([file], file.name, { type }));
  // Models take the same types as browsers for pictures; everything else is sent as a file.
  const part: ImagePart | FilePart = PICTURE_TYPES.has(type)
    ? { type: "input_image", image_url: url }
    : { type: "input_file", filename: file.name, file_data: url };
  return { name: file.name, size: file.size, part };
}

/** Whether a URL is a picture that the page holds itself. Pictures from elsewhere are never loaded. */
export function isHeldPicture(url: string): boolean {
  return /^data:image\/(?:png|jpeg|gif|webp);base64,/i.test(url);
}

/** The type of a file whose name says none: text where it reads as text. */
async function guessType(file: File): Promise<string> {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return "text/plain";
  } catch {
    return "application/octet-stream";
  }
}

function readDataURL(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}
