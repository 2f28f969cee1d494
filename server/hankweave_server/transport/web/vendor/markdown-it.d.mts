declare const markdownIt: any;
export default markdownIt;
