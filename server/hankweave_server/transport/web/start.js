/** The session, begun before the modules that draw it have come. */
import { Session } from "./session.js";

export const session = new Session(location);
