// What is wrong with an author's file: the message is meant for them, and says all there is to say.

export class Broken extends Error {
  name = "Broken";
}
